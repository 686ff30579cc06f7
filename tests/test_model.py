import copy

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from bba.model import BBAConfig, BBAForSequenceClassification
from bba.model.backbones import from_scratch
from bba.model.inference import logits_of, pad
from bba.model.packed import PackedClassifier
from bba.pruning.plan import plan_at
from bba.pruning.surgery import prune_to
from bba.settings import ModelSettings

BERT_NAMES = {
    "embeddings.word_embeddings": "embeddings.tokens",
    "embeddings.position_embeddings": "embeddings.positions",
    "embeddings.token_type_embeddings": "embeddings.segments",
    "embeddings.LayerNorm": "embeddings.norm",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "ffn.input",
    "output.dense": "ffn.output",
    "output.LayerNorm": "ffn_norm",
    "pooler.dense": "pooler",
}
"""In the order of use: `attention.output` has to be renamed before `output`."""


def from_bert(weights):
    """Return BERT's weights under our names: query, key and value of a layer become one matrix."""
    renamed = {}
    for name, tensor in weights.items():
        if ".self." in name:
            continue
        ours = name.replace("bert.", "encoder.").replace("encoder.encoder.layer.", "encoder.layers.")
        for theirs, own in BERT_NAMES.items():
            if theirs in ours:
                ours = ours.replace(theirs, own)
                break
        renamed[ours] = tensor
    layers = {name.split(".")[3] for name in weights if ".self." in name}
    for layer in layers:
        for kind in ("weight", "bias"):
            parts = [weights[f"bert.encoder.layer.{layer}.attention.self.{part}.{kind}"] for part in _QKV]
            renamed[f"encoder.layers.{layer}.attention.qkv.{kind}"] = torch.cat(parts)
    return renamed


_QKV = ("query", "key", "value")


@pytest.fixture(scope="module")
def pair():
    """Return a BERT with uneven random weights, and ours with the same."""
    torch.manual_seed(1)
    shape = {"vocab_size": 100, "hidden_size": 48, "max_position_embeddings": 40}
    bert = BertForSequenceClassification(
        BertConfig(num_hidden_layers=3, num_attention_heads=6, intermediate_size=80, num_labels=5, **shape)
    ).eval()
    with torch.no_grad():
        for parameter in bert.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    labels = {"id2label": dict(enumerate("abcde"))}
    ours = BBAForSequenceClassification(
        BBAConfig(head_size=8, dense_heads=[6] * 3, ffn_sizes=[80] * 3, **shape, **labels)
    ).eval()
    missing = ours.load_state_dict(from_bert(bert.state_dict()), strict=False)
    assert missing.missing_keys == ["gates.scores"]
    assert not missing.unexpected_keys
    return bert, ours


def batch_of(lengths, vocab_size=100, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(1, vocab_size, (length,), generator=generator).tolist() for length in lengths]
    return rows, *pad(rows, 0)


# The same function as BERT


@pytest.mark.parametrize("lengths", [[40], [1], [12, 12], [3, 40, 17, 1]], ids=str)
@torch.no_grad()
def test_same_logits_as_bert_on_the_same_weights(pair, lengths):
    bert, ours = pair
    _, ids, mask = batch_of(lengths)
    torch.testing.assert_close(ours(ids, mask).logits, bert(ids, mask).logits, rtol=0, atol=1e-5)


@torch.no_grad()
def test_same_logits_as_bert_with_two_segments(pair):
    bert, ours = pair
    _, ids, mask = batch_of([20, 31])
    segments = (torch.arange(31) > 10).long().expand(2, 31)
    expected = bert(ids, mask, token_type_ids=segments).logits
    torch.testing.assert_close(ours(ids, mask, token_type_ids=segments).logits, expected, rtol=0, atol=1e-5)
    assert (ours(ids, mask).logits - expected).abs().max() > 1e-3


def test_same_loss_and_gradient_as_bert(pair):
    bert, ours = pair
    _, ids, mask = batch_of([9, 14])
    labels = torch.tensor([4, 0])
    losses = [model(ids, mask, labels=labels).loss for model in (bert, ours)]
    torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=1e-5)
    theirs = torch.autograd.grad(losses[0], bert.bert.embeddings.word_embeddings.weight)[0]
    torch.testing.assert_close(
        torch.autograd.grad(losses[1], ours.encoder.embeddings.tokens.weight)[0], theirs, rtol=0, atol=1e-5
    )


# Attention


@pytest.mark.parametrize("lengths", [[24], [5, 24, 1]], ids=str)
@torch.no_grad()
def test_attention_maps_cost_time_but_change_nothing(model, lengths):
    _, ids, mask = batch_of(lengths, model.config.vocab_size)
    plain, mapped = model(ids, mask), model(ids, mask, output_attentions=True)
    torch.testing.assert_close(mapped.logits, plain.logits, rtol=0, atol=1e-5)
    assert plain.attentions is None


@torch.no_grad()
def test_attention_rows_add_up_to_1_and_ignore_padding(model):
    rows, ids, mask = batch_of([5, 24, 1], model.config.vocab_size)
    maps = model(ids, mask, output_attentions=True).attentions
    assert [tuple(weights.shape) for weights in maps] == [(3, 4, 24, 24)] * 3
    for weights in maps:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 4, 24))
        for row, tokens in zip(weights, rows, strict=True):
            assert (row[..., len(tokens) :] == 0).all()


@torch.no_grad()
def test_padding_does_not_change_a_texts_logits(model):
    rows, ids, mask = batch_of([3, 32, 11, 1], model.config.vocab_size)
    together = model(ids, mask).logits
    for logits, row in zip(together, rows, strict=True):
        torch.testing.assert_close(model(torch.tensor([row])).logits[0], logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_rows_come_back_in_their_own_order(model, batch_size):
    rows, *_ = batch_of([3, 32, 11, 1, 7, 7, 20], model.config.vocab_size)
    with torch.no_grad():
        expected = torch.cat([model(torch.tensor([row])).logits for row in rows])
    torch.testing.assert_close(logits_of(model, rows, batch_size), expected, rtol=0, atol=1e-5)


# Packed tokens


@torch.no_grad()
@pytest.mark.parametrize("setting", [(1.0, 1.0), (0.5, 0.5), (1 / 12, 1 / 9)])
@pytest.mark.parametrize("lengths", [[7], [9, 9, 9], [3, 32, 11, 1]])
def test_packed_tokens_give_the_models_logits_whatever_a_layer_has_left(two_dials, setting, lengths):
    pruned = prune_to(two_dials, *setting).eval()
    _, ids, mask = batch_of(lengths, pruned.config.vocab_size)
    expected = pruned(ids, mask).logits
    torch.testing.assert_close(PackedClassifier(pruned)(ids, mask), expected, rtol=0, atol=1e-5)
    if len(set(lengths)) == 1:
        torch.testing.assert_close(PackedClassifier(pruned)(ids), expected, rtol=0, atol=1e-5)


def test_no_matrix_product_sees_padding(two_dials, monkeypatch):
    seen = []
    product = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda bias, hidden, weight: seen.append(len(hidden)) or product(bias, hidden, weight)
    )
    _, ids, mask = batch_of([3, 24, 5], two_dials.config.vocab_size)
    PackedClassifier(two_dials)(ids, mask)
    assert set(seen) == {3 + 24 + 5, 3}  # All tokens, or the first of each text.


@torch.no_grad()
def test_packed_tokens_follow_the_models_weights(model):
    changed = copy.deepcopy(model)
    packed, (_, ids, mask) = PackedClassifier(changed), batch_of([9, 24], model.config.vocab_size)
    before = packed(ids, mask)
    changed.classifier.bias += 1
    torch.testing.assert_close(packed(ids, mask), before + 1)


# Gates in the model


@torch.no_grad()
def test_all_gates_open_is_the_dense_model_to_the_bit(model):
    _, ids, mask = batch_of([9, 24], model.config.vocab_size)
    dense = model(ids, mask).logits
    for gates in (model.gates.soft(1.0), model.gates.hard(1.0)):
        assert torch.equal(model(ids, mask, head_gates=gates).logits, dense)


@torch.no_grad()
def test_every_gate_of_a_block_acts_on_its_own_neurons(two_dials):
    _, ids, _ = batch_of([24], two_dials.config.vocab_size)
    for block in range(9):
        gates = torch.ones(9)
        gates[block] = 0.3
        by_hand = copy.deepcopy(two_dials)
        rows = slice(block % 3 * 16, block % 3 * 16 + 16)
        by_hand.encoder.layers[block // 3].ffn.output.weight[:, rows] *= 0.3
        torch.testing.assert_close(two_dials(ids, ffn_gates=gates).logits, by_hand(ids).logits, rtol=0, atol=1e-5)


@torch.no_grad()
def test_gates_that_are_almost_closed_do_what_closed_ones_do(two_dials):
    _, ids, mask = batch_of([9, 24], two_dials.config.vocab_size)
    for budget in (0.1, 0.5, 0.9):
        heads, blocks = two_dials.gates.hard(budget), two_dials.ffn_gates.hard(budget)
        closed = two_dials(ids, mask, head_gates=heads, ffn_gates=blocks).logits
        almost = two_dials(ids, mask, head_gates=heads.clamp(min=1e-9), ffn_gates=blocks.clamp(min=1e-9)).logits
        torch.testing.assert_close(closed, almost, rtol=0, atol=1e-5)


@pytest.mark.parametrize("budget", [0.1, 0.5])
def test_closed_units_are_not_trained_and_open_ones_are_as_if_they_were_alone(two_dials, budget):
    _, ids, mask = batch_of([9, 24], two_dials.config.vocab_size)
    labels, trained, alone = torch.tensor([0, 1]), copy.deepcopy(two_dials), prune_to(two_dials, budget, budget)
    gates = {"head_gates": trained.gates.hard(budget), "ffn_gates": trained.ffn_gates.hard(budget)}
    trained(ids, mask, labels=labels, **gates).loss.backward()
    alone(ids, mask, labels=labels).loss.backward()
    plan = plan_at(two_dials, budget, budget)
    for layer, (whole, part) in enumerate(zip(trained.encoder.layers, alone.encoder.layers, strict=True)):
        neurons = [16 * block + neuron for block in plan.blocks[layer] for neuron in range(16)]
        gradient = whole.ffn.input.weight.grad
        if neurons:
            torch.testing.assert_close(gradient[neurons], part.ffn.input.weight.grad)
        assert gradient is None or gradient.abs().sum(dim=1).count_nonzero() <= len(neurons)


@torch.no_grad()
def test_the_encoder_gives_every_position_unless_the_first_is_enough(two_dials):
    _, ids, mask = batch_of([9, 24], two_dials.config.vocab_size)
    whole, pooled, _ = two_dials.encoder(ids, mask)
    first, same, _ = two_dials.encoder(ids, mask, first_only=True)
    assert whole.shape == (2, 24, 32)
    torch.testing.assert_close(first, whole[:, :1], rtol=0, atol=1e-5)
    torch.testing.assert_close(same, pooled, rtol=0, atol=1e-5)


@torch.no_grad()
def test_every_gate_acts_on_its_own_head(model):
    _, ids, _ = batch_of([24], model.config.vocab_size)
    seen = [model(ids).logits]
    for head in range(12):
        gates = torch.ones(12)
        gates[head] = 0
        seen.append(model(ids, head_gates=gates).logits)
    distances = torch.cdist(torch.cat(seen), torch.cat(seen)) + torch.eye(13)
    assert distances.min() > 1e-4


def test_training_reaches_scores_and_weights_through_the_gates(model, tokenizer):
    torch.manual_seed(0)
    fresh = from_scratch(ModelSettings(32, 2, 4, 48, 32), len(tokenizer), "abcd")
    _, ids, mask = batch_of([9, 24], model.config.vocab_size)
    fresh(ids, mask, labels=torch.tensor([0, 1]), head_gates=fresh.gates.soft(0.5)).loss.backward()
    assert fresh.gates.scores.grad.abs().sum() > 0
    assert all(parameter.grad is not None for parameter in fresh.parameters())


def test_equal_seeds_give_equal_fresh_weights():
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(from_scratch(ModelSettings(32, 2, 4, 48, 16), 50, "ab").state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_fresh_weights_have_berts_spread():
    torch.manual_seed(0)
    fresh = from_scratch(ModelSettings(64, 2, 4, 128, 32), 500, "ab")
    for module in fresh.modules():
        if isinstance(module, torch.nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.15)
            assert (module.bias == 0).all()


# The configuration


@pytest.mark.parametrize(
    "wrong",
    [
        {"kept_heads": [[0, 1], [0]]},
        {"kept_heads": [[1, 0]] * 4},
        {"kept_heads": [[0, 0]] * 4},
        {"kept_heads": [[8]] * 4},
        {"kept_heads": [[-1]] * 4},
        {"ffn_sizes": [512]},
        {"ffn_block": 100},
        {"ffn_block": -64},
        {"ffn_block": 64, "kept_blocks": [[0, 1]]},
        {"ffn_block": 64, "kept_blocks": [[8]] * 4},
        {"ffn_block": 64, "kept_blocks": [[1, 0]] * 4},
        {"kept_blocks": [[0]] * 4},
        {"dense_heads": [], "kept_heads": [], "ffn_sizes": []},
    ],
    ids=str,
)
def test_layers_that_do_not_agree_are_refused(wrong):
    with pytest.raises(Exception, match=r"kept_heads|ffn_sizes|kept_blocks|ffn_block"):
        BBAConfig(**wrong)


@pytest.mark.parametrize("count", [2, 14, 120])
def test_labels_keep_their_order_on_disk(tmp_path, count):
    labels = [f"label {number}" for number in range(count)]
    config = BBAConfig(id2label=dict(enumerate(labels)), label2id={label: n for n, label in enumerate(labels)})
    for folder in ("once", "twice"):
        config.save_pretrained(tmp_path / folder)
        config = BBAConfig.from_pretrained(tmp_path / folder)
    assert config.labels == labels
    assert config.num_labels == count
