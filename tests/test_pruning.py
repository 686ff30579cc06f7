import copy
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bba.checkpoints import Checkpoint
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError
from bba.model import SequenceClassifier
from bba.model.backbones import from_scratch
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier
from bba.pruning.cost import parameters
from bba.pruning.importance import importance, sort_neurons
from bba.pruning.plan import Plan, everything, plan_at, positions, select, without_attention
from bba.pruning.surgery import prune, prune_to
from bba.settings import ModelSettings


@pytest.fixture(scope="module")
def batch(model):
    ids = torch.randint(1, model.config.vocab_size, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(20) < torch.tensor([[20], [7], [1]])).long()
    return ids, mask


def gates_of(present, kept):
    return torch.tensor([float(unit in kept[layer]) for layer, unit in positions(present)])


def heads_only(heads):
    return Plan(heads, ((),) * len(heads))


@torch.no_grad()
def assert_same_function(model, plan, batch):
    config = model.config
    gates = {"head_gates": gates_of(config.heads, plan.heads)}
    if config.ffn_block:
        gates["ffn_gates"] = gates_of(config.blocks, plan.blocks)
    gated = model(*batch, **gates).logits
    for share in (False, True):
        torch.testing.assert_close(prune(model, plan, share)(*batch).logits, gated, rtol=0, atol=1e-5)


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Gated and pruned are the same function


@pytest.mark.parametrize("count", range(1, 13))
def test_pruned_computes_what_gated_does_at_every_number_of_heads(model, batch, count):
    plan = plan_at(model, count / 12)
    assert plan.num_heads == count
    assert torch.equal(gates_of(model.config.heads, plan.heads), model.gates.hard(count / 12))
    assert_same_function(model, plan, batch)


@pytest.mark.parametrize("budget", [0.01, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("ffn_budget", [0.01, *(count / 9 for count in range(1, 10))])
def test_pruned_computes_what_gated_does_at_every_pair(two_dials, batch, budget, ffn_budget):
    plan = plan_at(two_dials, budget, ffn_budget)
    config = two_dials.config
    assert torch.equal(gates_of(config.heads, plan.heads), two_dials.gates.hard(budget))
    assert torch.equal(gates_of(config.blocks, plan.blocks), two_dials.ffn_gates.hard(ffn_budget))
    smaller = prune(two_dials, plan)
    assert smaller.encoder.layers[0].ffn.input.weight.shape == (16 * len(plan.blocks[0]), 32)
    assert_same_function(two_dials, plan, batch)


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
    assert_same_function(model, heads_only(heads), batch)


def test_any_choice_of_heads_and_blocks_can_be_cut(two_dials, batch):
    generator = torch.Generator().manual_seed(5)
    config = two_dials.config
    for _ in range(20):
        heads, blocks = (torch.rand(count, generator=generator) < 0.5 for count in (12, 9))
        kept = select(config.heads, heads.nonzero().flatten()), select(config.blocks, blocks.nonzero().flatten())
        assert_same_function(two_dials, Plan(*kept), batch)


@pytest.mark.parametrize("blocks", [((), (), ()), ((2,), (), (0, 1)), ((), (0, 1, 2), ())], ids=str)
def test_pruned_computes_what_gated_does_where_layers_have_no_neuron(two_dials, batch, blocks):
    for heads in (((), (), ()), ((0, 1, 2, 3),) * 3):
        assert_same_function(two_dials, Plan(heads, blocks), batch)


def test_an_ffn_budget_of_1_is_the_model_without_that_dial(model, two_dials, batch):
    for count in range(1, 13):
        alone, beside = prune_to(model, count / 12), prune_to(two_dials, count / 12, 1.0)
        assert torch.equal(alone(*batch).logits, beside(*batch).logits)
        assert alone.config.ffn_widths == beside.config.ffn_widths


def test_other_layers_may_have_other_numbers_of_heads(batch, model):
    torch.manual_seed(0)
    uneven = prune(
        from_scratch(ModelSettings(32, 3, 4, 48, 32), 64, PEOPLE).eval(), heads_only(((1, 3), (), (0, 1, 2)))
    )
    for heads in (((3,), (), (0, 2)), ((1, 3), (), ())):
        assert_same_function(uneven, heads_only(heads), batch)


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
    scores = [model.gates.scores[4 * layer + head].item() for layer, head in positions(smaller.config.heads)]
    assert smaller.gates.scores.tolist() == scores


def test_plans_nest_in_either_dial(two_dials):
    kept = {"heads": set(), "blocks": set()}
    for step in range(1, 37):
        plan = plan_at(two_dials, step / 36, step / 36)
        for units, before in kept.items():
            now = set(positions(getattr(plan, units)))
            assert now >= before
            assert len(now) == max(1, step * {"heads": 12, "blocks": 9}[units] // 36)
            kept[units] = now


def test_the_dials_are_independent(two_dials):
    for budget in (0.25, 1.0):
        assert len({plan_at(two_dials, budget, ffn).heads for ffn in (0.1, 0.5, 1.0)}) == 1
        assert len({plan_at(two_dials, head, budget).blocks for head in (0.1, 0.5, 1.0)}) == 1


def test_pruning_a_pair_in_steps_is_pruning_once(two_dials):
    once = prune_to(two_dials, 0.25, 1 / 3)
    for steps in ([(0.25, 1.0), (0.25, 1 / 3)], [(1.0, 1 / 3), (0.25, 1.0)], [(0.5, 2 / 3), (0.25, 1 / 3)]):
        model = two_dials
        for step in steps:
            model = prune_to(model, *step)
        assert model.config.to_dict() == once.config.to_dict()
        assert same_state(model.state_dict(), once.state_dict())


def test_a_model_without_the_dial_says_so(model):
    with pytest.raises(BudgetError) as caught:
        plan_at(model, 0.5, 0.5)
    assert str(caught.value) == (
        "The FFN budget 0.5 is not usable: this model was trained for head budgets only, so give 1, or train one with "
        "--training.ffn true."
    )


@pytest.mark.parametrize("ffn_budget", [0, -1, 1.5, float("nan"), "0,5", None])
def test_what_is_no_ffn_budget_is_refused(two_dials, ffn_budget):
    with pytest.raises(BudgetError, match="above 0 and up to 1"):
        plan_at(two_dials, 0.5, ffn_budget)


def test_a_pruned_model_has_no_more_blocks_to_give(two_dials):
    smaller = prune_to(two_dials, 0.5, 1 / 3)
    with pytest.raises(BudgetError) as caught:
        plan_at(smaller, 0.5, 0.5)
    assert str(caught.value) == (
        "The budget 0.5 asks for 4 feed-forward blocks but this model was pruned to 3 of 9: "
        "ask for less, or use the model it was pruned from."
    )
    assert plan_at(smaller, 0.5) == everything(smaller.config)  # An FFN budget of 1 leaves what is there.


def test_without_attention_every_block_stays(two_dials, batch):
    plan = without_attention(two_dials.config)
    assert (plan.num_heads, plan.num_blocks) == (0, 9)
    assert_same_function(two_dials, plan, batch)


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
        prune(model, heads_only(heads))


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
from safetensors.torch import save_file
from bba import BudgetedClassifier
from bba.data.synthetic import synthetic_split
from bba.model.inference import logits_of
torch.set_num_threads(1)
classifier = BudgetedClassifier.from_pretrained(sys.argv[1])
rows = [one.ids for one in classifier.encode(synthetic_split(20, "fresh").texts)]
model = classifier.checkpoint.model
save_file({**model.state_dict(), "logits": logits_of(model, rows)}, sys.argv[2])
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "small", tmp_path / "out.safetensors"], check=True)
    state = load_file(tmp_path / "out.safetensors")
    logits = state.pop("logits")
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
    assert isinstance(again.checkpoint.model, SequenceClassifier)
    assert again.prune(1 / 12).checkpoint.model.config.num_kept_heads == 1


def test_a_pruned_checkpoint_knows_its_parent_and_its_budget(classifier, tmp_path):
    once, twice = classifier.prune(0.5), classifier.prune(0.75).prune(0.25)
    assert once.report.parent == {"name": "tiny", "budget": 0.5, "ffn_budget": 1.0}
    assert twice.report.parent == {"name": "tiny", "budget": 0.25, "ffn_budget": 1.0}
    assert once.largest_budget == 0.5
    assert once.report.test == [row for row in classifier.report.test if row.heads <= 6]
    assert max(row.heads for row in once.report.test) == 6


# Importance


def some_texts(model, seed):
    ids = torch.randint(1, model.config.vocab_size, (4, 9), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "labels": torch.tensor([0, 1, 2, 3])}


def test_importance_is_the_mean_absolute_gradient_of_the_gate(model):
    texts = some_texts(model, 1)
    measured = importance(model, [texts])
    for scores, name, count in zip(measured, ("head_gates", "ffn_gates"), (12, 144), strict=True):
        expected = torch.zeros(count)
        with torch.no_grad():
            for row in range(4):
                one = {key: value[row : row + 1] for key, value in texts.items()}
                for unit in range(0, count, 1 if count == 12 else 4):
                    gates = torch.ones(count)
                    losses = []
                    for step in (2e-2, -2e-2):
                        gates[unit] = 1 + step
                        losses.append(model(**one, **{name: gates}).loss)
                    expected[unit] += abs(losses[0] - losses[1]) / 4e-2
        seen = expected.view(3, -1) > 0
        by_layer = torch.stack(scores)
        ratio = (expected.view(3, -1) / by_layer)[seen].view(3, -1)
        torch.testing.assert_close(ratio, ratio.mean(dim=1, keepdim=True).expand_as(ratio), rtol=0.1, atol=0)
        torch.testing.assert_close(by_layer.norm(dim=1), torch.ones(3))


def test_importance_does_not_depend_on_how_texts_are_batched(model):
    texts = some_texts(model, 2)
    whole = importance(model, [texts])
    single = importance(model, [{key: value[n : n + 1] for key, value in texts.items()} for n in range(4)])
    for one, other in zip(whole, single, strict=True):
        torch.testing.assert_close(torch.stack(one), torch.stack(other))


def test_sorted_neurons_compute_the_same_and_come_in_order(two_dials, batch):
    sorted_model = copy.deepcopy(two_dials)
    _, neurons = importance(two_dials, [some_texts(two_dials, 3)])
    in_order = sort_neurons(sorted_model, neurons)
    with torch.no_grad():
        torch.testing.assert_close(sorted_model(*batch).logits, two_dials(*batch).logits, rtol=0, atol=1e-5)
    again = importance(sorted_model, [some_texts(two_dials, 3)])[1]
    for scores, expected in zip(again, in_order, strict=True):
        assert (scores.diff() <= 1e-4).all()
        torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-5)
