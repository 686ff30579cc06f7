import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

from bba.checkpoints import Checkpoint
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError
from bba.model import BBAForSequenceClassification
from bba.model.backbones import from_scratch
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier
from bba.pruning.cost import parameters
from bba.pruning.importance import head_importance
from bba.pruning.plan import Plan, head_positions, keep_positions, plan_at
from bba.pruning.surgery import prune, prune_to
from bba.settings import ModelSettings


@pytest.fixture(scope="module")
def batch(model):
    ids = torch.randint(1, model.config.vocab_size, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(20) < torch.tensor([[20], [7], [1]])).long()
    return ids, mask


def gates_of(config, plan):
    return torch.tensor([float(head in plan.heads[layer]) for layer, head in head_positions(config)])


@torch.no_grad()
def assert_same_function(model, plan, batch):
    gated = model(*batch, head_gates=gates_of(model.config, plan)).logits
    torch.testing.assert_close(prune(model, plan)(*batch).logits, gated, rtol=0, atol=1e-5)


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Gated and pruned are the same function


@pytest.mark.parametrize("count", range(1, 13))
def test_pruned_computes_what_gated_does_at_every_number_of_heads(model, batch, count):
    plan = plan_at(model, count / 12)
    assert plan.num_heads == count
    assert torch.equal(gates_of(model.config, plan), model.gates.hard(count / 12))
    assert_same_function(model, plan, batch)


@pytest.mark.parametrize(
    "heads",
    [
        ((), (), ()),
        ((), (0, 1, 2, 3), ()),
        ((3,), (), (0, 2)),
        ((0, 1, 2, 3), (0, 1, 2, 3), (1,)),
    ],
    ids=str,
)
def test_pruned_computes_what_gated_does_where_layers_have_no_head(model, batch, heads):
    assert_same_function(model, Plan(heads), batch)


def test_any_choice_of_heads_can_be_cut(model, batch):
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        keep = torch.rand(12, generator=generator) < 0.5
        assert_same_function(model, keep_positions(model.config, keep.nonzero().flatten()), batch)


def test_other_layers_may_have_other_numbers_of_heads(batch, model):
    torch.manual_seed(0)
    uneven = prune(from_scratch(ModelSettings(32, 3, 4, 48, 32), 64, PEOPLE).eval(), Plan(((1, 3), (), (0, 1, 2))))
    for heads in (((3,), (), (0, 2)), ((1, 3), (), ())):
        assert_same_function(uneven, Plan(heads), batch)


def test_pruning_leaves_the_model_as_it_was(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = model.config.to_dict()
    smaller = prune_to(model, 0.5)
    with torch.no_grad():
        for parameter in smaller.parameters():
            parameter.zero_()
    smaller.config.kept_heads[0].clear()
    assert same_state(model.state_dict(), before)
    assert model.config.to_dict() == config
    assert not model.training


# What is left


def test_pruning_twice_is_pruning_once(model):
    once, twice = prune_to(model, 0.25), prune_to(prune_to(model, 0.6), 0.25)
    assert twice.config.kept_heads == once.config.kept_heads
    assert same_state(twice.state_dict(), once.state_dict())


def test_heads_keep_the_numbers_they_had(model):
    smaller = prune_to(model, 0.5)
    best = model.gates.scores.topk(6).indices.tolist()
    expected = [[head for head in range(4) if 4 * layer + head in best] for layer in range(3)]
    assert smaller.config.kept_heads == expected
    assert smaller.config.dense_heads == model.config.dense_heads
    scores = [model.gates.scores[4 * layer + head].item() for layer, head in head_positions(smaller.config)]
    assert smaller.gates.scores.tolist() == scores


def test_plans_nest(model):
    kept = set()
    for count in range(1, 13):
        plan = plan_at(model, count / 12)
        now = {(layer, head) for layer, heads in enumerate(plan.heads) for head in heads}
        assert now > kept
        kept = now


@pytest.mark.parametrize("budget", [0.6, 1, 1.0])
def test_a_pruned_model_has_no_more_heads_to_give(model, budget):
    smaller = prune_to(model, 0.5)
    with pytest.raises(BudgetError) as caught:
        plan_at(smaller, budget)
    heads = int(budget * 12)
    assert str(caught.value) == (
        f"The budget {budget} asks for {heads} heads but this model was pruned to 6 of 12: "
        "ask for less, or use the model it was pruned from."
    )


@pytest.mark.parametrize("heads", [((0,), (0,)), ((0,), (9,), (0,)), ((0,), (0,), (0,), (0,))], ids=str)
def test_a_plan_for_another_model_is_refused(model, heads):
    with pytest.raises(BudgetError, match="The plan keeps"):
        prune(model, Plan(heads))


# On disk


def tensors_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def test_the_file_shrinks_by_what_was_cut_and_nothing_else(classifier, checkpoint_folder, tmp_path):
    smaller = classifier.prune(0.25)
    smaller.save_pretrained(tmp_path / "small")
    dense_config, small_config = classifier.checkpoint.model.config, smaller.checkpoint.model.config
    cut = parameters(dense_config).total - parameters(small_config).total
    assert cut == 9 * (4 * 32 * 8 + 3 * 8 + 1)  # Of 9 heads: q, k, v and output, the biases of the former, a score.
    saved = bytes_of(tensors_of(checkpoint_folder)) - bytes_of(tensors_of(tmp_path / "small"))
    assert saved == 2 * cut  # Two bytes a number.


def test_a_fresh_process_loads_what_was_saved_to_the_bit(classifier, tmp_path):
    smaller = classifier.prune(0.5)
    smaller.save_pretrained(tmp_path / "small")
    program = """
import sys, torch
from bba import BudgetedClassifier
from bba.data.synthetic import synthetic_split
from bba.model.inference import logits_of
torch.set_num_threads(1)
classifier = BudgetedClassifier.from_pretrained(sys.argv[1])
rows = [one.ids for one in classifier.encode(synthetic_split(20, "fresh").texts)]
torch.save((classifier.checkpoint.model.state_dict(), logits_of(classifier.checkpoint.model, rows)), sys.argv[2])
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "small", tmp_path / "out.pt"], check=True)
    state, logits = torch.load(tmp_path / "out.pt")
    model = smaller.checkpoint.model
    assert same_state(state, model.state_dict())
    rows = [one.ids for one in smaller.encode(synthetic_split(20, "fresh").texts)]
    assert torch.equal(logits, logits_of(model, rows))


@pytest.mark.parametrize(("change", "dtype"), [(0.0, torch.float16), (1e-7, torch.float32), (1e6, torch.float32)])
def test_weights_are_stored_in_half_only_where_that_loses_nothing(model, tokenizer, report, tmp_path, change, dtype):
    changed = prune_to(model, 1)
    with torch.no_grad():
        changed.classifier.bias[0] += change
    BudgetedClassifier(Checkpoint(changed, tokenizer, report), "x").save_pretrained(tmp_path / "x")
    assert {tensor.dtype for tensor in tensors_of(tmp_path / "x").values()} == {dtype}
    loaded = BudgetedClassifier.from_pretrained(tmp_path / "x").checkpoint.model
    assert same_state(loaded.state_dict(), changed.state_dict())
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


@pytest.mark.parametrize("budget", [0.5, 1 / 12])
def test_a_model_pruned_to_nearly_nothing_can_be_loaded_and_pruned_again(classifier, tmp_path, budget):
    classifier.prune(budget).save_pretrained(tmp_path / "small")
    again = BudgetedClassifier.from_pretrained(tmp_path / "small")
    assert isinstance(again.checkpoint.model, BBAForSequenceClassification)
    assert again.prune(1 / 12).checkpoint.model.config.num_kept_heads == 1


def test_a_pruned_checkpoint_knows_its_parent_and_its_budget(classifier, tmp_path):
    once, twice = classifier.prune(0.5), classifier.prune(0.75).prune(0.25)
    assert once.report.parent == {"name": "tiny", "budget": 0.5}
    assert twice.report.parent == {"name": "tiny", "budget": 0.25}
    assert once.largest_budget == 0.5
    assert once.report.test == [row for row in classifier.report.test if row.heads <= 6]
    assert max(row.heads for row in once.report.test) == 6


# Importance


def test_importance_is_the_mean_absolute_gradient_of_the_gate(model):
    ids = torch.randint(1, model.config.vocab_size, (4, 9), generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3])
    scores = head_importance(model, [{"input_ids": ids, "labels": labels}])
    expected = torch.zeros(12)
    with torch.no_grad():
        for row, label in zip(ids, labels, strict=True):
            for head in range(12):
                losses = []
                for step in (1e-2, -1e-2):
                    gates = torch.ones(12)
                    gates[head] += step
                    losses.append(model(row[None], labels=label[None], head_gates=gates).loss)
                expected[head] += abs(losses[0] - losses[1]) / 2e-2
    by_layer = expected.view(3, 4)
    torch.testing.assert_close(scores.view(3, 4), by_layer / by_layer.norm(dim=1, keepdim=True), rtol=1e-2, atol=1e-3)


def test_importance_does_not_depend_on_how_texts_are_batched(model):
    ids = torch.randint(1, model.config.vocab_size, (4, 9), generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 1, 2, 3])
    whole = head_importance(model, [{"input_ids": ids, "labels": labels}])
    single = head_importance(model, [{"input_ids": ids[n : n + 1], "labels": labels[n : n + 1]} for n in range(4)])
    torch.testing.assert_close(whole, single)
