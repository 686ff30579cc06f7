import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bba.model import BBAConfig, BBAForSequenceClassification
from bba.model.modeling import eager_attention
from bba.pruning.cost import (
    block_share,
    dense_config,
    encoder_share,
    flops,
    head_share,
    parameters,
    predicted_speedup,
    unit_flops,
)

CONFIGS = {
    "dense": {},
    "uneven heads": {"kept_heads": [[0, 1, 2, 3], [2], [], [0, 3]]},
    "uneven everything": {"kept_heads": [[1], [0, 1, 2], [3], []], "ffn_sizes": [10, 200, 64, 1], "head_size": 20},
    "uneven blocks": {"ffn_block": 16, "kept_blocks": [[0, 5], [], [0, 1, 2, 3, 4, 5], [3]], "kept_heads": [[1]] * 4},
    "no head": {"kept_heads": [[], [], [], []]},
    "uneven dense heads": {"dense_heads": [1, 2, 3, 4], "head_size": 12},
}


def config_of(name, labels=7):
    shape = {"vocab_size": 90, "hidden_size": 48, "head_size": 12, "dense_heads": [4] * 4, "ffn_sizes": [96] * 4}
    return BBAConfig(**{**shape, **CONFIGS[name]}, id2label={n: str(n) for n in range(labels)})


every_config = pytest.mark.parametrize("config", [config_of(name) for name in CONFIGS], ids=CONFIGS)


@pytest.fixture
def plain_attention(monkeypatch):
    """Attend with plain matrix products: torch counts nothing for its fused attention on a CPU."""

    def attend(query, key, value, attn_mask, dropout_p):
        return eager_attention(query, key, value, attn_mask, dropout_p)[0]

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", attend)


@every_config
@pytest.mark.parametrize("length", [1, 16, 100])
@pytest.mark.usefixtures("plain_attention")
def test_flops_are_those_that_torch_counts(config, length):
    model = BBAForSequenceClassification(config).eval().requires_grad_(False)
    ids = torch.ones(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids)
    assert flops(config, length).total == pytest.approx(counter.get_total_flops(), rel=0.01)


@every_config
def test_parameters_are_those_that_the_model_has(config):
    model = BBAForSequenceClassification(config)
    cost = parameters(config)
    assert cost.total == model.num_parameters()
    parts = {"embeddings": ("embeddings.tokens", "embeddings.positions", "embeddings.segments")}
    parts |= {"projections": ("attention.", ".gates"), "ffn": ("ffn.", ".ffn_gates"), "norms": ("norm",)}
    parts |= {"classifier": ("pooler", "classifier")}
    for part, names in parts.items():
        counted = sum(p.numel() for name, p in model.named_parameters() if any(known in f".{name}" for known in names))
        assert getattr(cost, part) == counted, part


@every_config
def test_parts_add_up(config):
    for cost in (flops(config, 20), parameters(config)):
        parts = (cost.embeddings, cost.projections, cost.scores_and_values, cost.ffn, cost.norms, cost.classifier)
        assert sum(parts) == cost.total
        assert cost.attention == cost.projections + cost.scores_and_values


@every_config
@pytest.mark.parametrize("length", [1, 17])
def test_the_encoder_is_the_sum_of_its_units(config, length):
    head, neuron = unit_flops(config, length)
    assert (
        sum(cost * len(kept) for cost, kept in zip(head, config.heads, strict=True)) == flops(config, length).attention
    )
    assert sum(cost * width for cost, width in zip(neuron, config.ffn_widths, strict=True)) == flops(config, length).ffn


def test_attention_costs_in_proportion_to_the_heads():
    dense, half = config_of("dense"), config_of("dense")
    half.kept_heads = [[0, 1], [0, 1, 2, 3], [], [1, 3]]
    assert head_share(half) == 0.5
    assert parameters(half).projections * 2 == pytest.approx(parameters(dense).projections, rel=0.02)
    assert flops(half, 33).ffn == flops(dense, 33).ffn


def test_predicted_speedup_is_the_ratio_of_flops():
    dense, none = config_of("dense"), config_of("no head")
    assert predicted_speedup(dense, dense, 64) == 1
    expected = flops(dense, 64).total / (flops(dense, 64).total - flops(dense, 64).attention)
    assert predicted_speedup(none, dense, 64) == pytest.approx(expected)


def test_halving_every_layer_halves_the_encoder():
    half = BBAConfig(
        hidden_size=48, head_size=12, dense_heads=[4] * 3, kept_heads=[[0, 1], [1, 3], [2, 3]],
        ffn_sizes=[96] * 3, ffn_block=16, kept_blocks=[[0, 1, 2], [3, 4, 5], [0, 2, 4]],
    )  # fmt: skip
    assert (head_share(half), block_share(half)) == (0.5, 0.5)
    assert encoder_share(half, 50) == 0.5
    whole = dense_config(half)
    assert (whole.num_kept_heads, whole.num_kept_blocks) == (12, 18)
    assert encoder_share(whole) == 1
    assert half.num_kept_heads == 6


def test_a_model_without_ffn_dial_keeps_its_feed_forward_part():
    assert block_share(config_of("uneven heads")) == 1
    assert encoder_share(config_of("no head")) == pytest.approx(
        flops(config_of("dense"), 64).ffn / flops(config_of("dense"), 64).encoder
    )
