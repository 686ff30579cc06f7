import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bba.model import BBAConfig, BBAForSequenceClassification
from bba.pruning.cost import flops, head_share, parameters, predicted_speedup

CONFIGS = {
    "dense": {},
    "uneven heads": {"kept_heads": [[0, 1, 2, 3], [2], [], [0, 3]]},
    "uneven everything": {"kept_heads": [[1], [0, 1, 2], [3], []], "ffn_sizes": [10, 200, 64, 1], "head_size": 20},
    "no head": {"kept_heads": [[], [], [], []]},
    "uneven dense heads": {"dense_heads": [1, 2, 3, 4], "head_size": 12},
}


def config_of(name, labels=7):
    shape = {"vocab_size": 90, "hidden_size": 48, "head_size": 12, "dense_heads": [4] * 4, "ffn_sizes": [96] * 4}
    return BBAConfig(**{**shape, **CONFIGS[name]}, id2label={n: str(n) for n in range(labels)})


every_config = pytest.mark.parametrize("config", [config_of(name) for name in CONFIGS], ids=CONFIGS)


@every_config
@pytest.mark.parametrize("length", [1, 16, 100])
def test_flops_are_those_that_torch_counts(config, length):
    model = BBAForSequenceClassification(config).eval().requires_grad_(False)
    ids = torch.ones(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids, output_attentions=True)  # torch counts nothing for its fused attention on a CPU.
    assert flops(config, length).total == pytest.approx(counter.get_total_flops(), rel=0.01)


@every_config
def test_parameters_are_those_that_the_model_has(config):
    model = BBAForSequenceClassification(config)
    cost = parameters(config)
    assert cost.total == model.num_parameters()
    parts = {"embeddings": ("embeddings.tokens", "embeddings.positions", "embeddings.segments")}
    parts |= {"projections": ("attention.", "gates"), "ffn": ("ffn.",), "norms": ("norm",)}
    parts |= {"classifier": ("pooler", "classifier")}
    for part, names in parts.items():
        counted = sum(p.numel() for name, p in model.named_parameters() if any(known in name for known in names))
        assert getattr(cost, part) == counted, part


@every_config
def test_parts_add_up(config):
    for cost in (flops(config, 20), parameters(config)):
        parts = (cost.embeddings, cost.projections, cost.scores_and_values, cost.ffn, cost.norms, cost.classifier)
        assert sum(parts) == cost.total
        assert cost.attention == cost.projections + cost.scores_and_values


def test_attention_costs_in_proportion_to_the_heads():
    dense, half = config_of("dense"), config_of("dense")
    half.kept_heads = [[0, 1], [0, 1, 2, 3], [], [1, 3]]
    assert head_share(half) == 0.5
    assert flops(half, 33).attention * 2 == flops(dense, 33).attention
    assert flops(half, 33).ffn == flops(dense, 33).ffn


def test_predicted_speedup_is_the_ratio_of_flops():
    dense, none = config_of("dense"), config_of("no head")
    assert predicted_speedup(dense, dense, 64) == 1
    expected = flops(dense, 64).total / (flops(dense, 64).total - flops(dense, 64).attention)
    assert predicted_speedup(none, dense, 64) == pytest.approx(expected)
