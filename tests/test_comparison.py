import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from bba.commands.compare import compare as run_comparison
from bba.data import sources
from bba.data.synthetic import PEOPLE, synthetic_split, synthetic_tokenizer
from bba.data.texts import TextData
from bba.errors import BBAError, DataError, TrainingError
from bba.measure import walltime
from bba.measure.results import (
    METHODS,
    PER_TEXT,
    ResultRow,
    best_specialists,
    check_methods,
    mcnemar,
    read_results,
    summarise,
    training_cost,
    write_results,
)
from bba.measure.results_page import results_page
from bba.model import Setting
from bba.pruning.cost import flops
from bba.pruning.importance import chance, magnitude, set_order
from bba.pruning.plan import plan_at
from bba.settings import ModelSettings, StageSettings, TrainSettings
from bba.training import comparison
from bba.training.baselines import Contestants, even_plan
from bba.training.runs import work_folder
from bba.training.stages import encode
from bba.training.trainer import BudgetTrainer

MODEL = ModelSettings(hidden_size=32, layers=2, heads=4, ffn_size=128, max_length=32, dropout=0.1)
TRAINING = TrainSettings(
    dense=StageSettings(1, 1e-3),
    soft=StageSettings(1, 1e-3),
    hard=StageSettings(1, 1e-3),
    batch_size=20,
    min_steps=1,
    save_every=5,
)
"""80 texts: 4 steps a stage."""
BUDGETS = "0.5,0.5:0.5"


def small_data(seed):
    sizes = {"train": 100, "validation": 40, "test": 60}
    splits = {name: synthetic_split(n, f"{seed if name != 'test' else 0}/{name}") for name, n in sizes.items()}
    return TextData("synthetic", PEOPLE, **splits, source="made here", licence="Free.")


def compare(out, **options):
    defaults = {"budgets": BUDGETS, "seeds": "0", "limit": 80, "model": MODEL, "training": TRAINING}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "synthetic_data", small_data)
        patch.setattr(walltime, "ROUNDS", 2)
        patch.setattr(comparison, "TIMED_TEXTS", 8)
        return run_comparison("synthetic", out, **{**defaults, **options})


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the results file of a comparison of everything, with the page about it."""
    folder = tmp_path_factory.mktemp("compared")
    compare(folder / "results" / "tiny.csv", page=folder / "RESULTS.md")
    return folder / "results" / "tiny.csv"


# What is compared


def test_every_method_is_there_at_every_setting_cut_to_the_same_size(compared):
    frame = read_results(compared)
    settings = {(0.5, 1.0): (4, 4), (0.5, 0.5): (4, 2)}
    for (budget, ffn_budget), (heads, blocks) in settings.items():
        rows = frame[(frame["budget"] == budget) & (frame["ffn_budget"] == ffn_budget)]
        absent = {"dense", "int8"} if ffn_budget == 1 else {"dense", "int8", "budgetformer"}
        assert sorted(rows["method"]) == sorted(set(METHODS) - absent)
        rows = rows[~rows["method"].isin(PER_TEXT)]
        assert set(rows["heads"]) == {heads}
        assert set(rows["blocks"]) == {blocks}
    whole = frame[frame["budget"] == 1]
    assert list(whole["method"]) == ["dense", "budgeted", "int8"]
    assert set(whole["encoder_cost"]) == {1.0}


def test_all_see_as_many_examples_but_those_that_recover(compared):
    frame = read_results(compared).set_index("method")
    recovered = frame.index.str.endswith("+recovery")
    assert set(frame[~recovered]["examples_seen"]) == {3 * 80}
    assert set(frame[recovered]["examples_seen"]) == {4 * 80}
    assert set(frame["training_texts"]) == {80}


def test_what_chooses_for_each_text_is_timed_on_real_texts_alone(compared):
    frame = read_results(compared)
    chosen = frame["method"].isin(PER_TEXT)
    assert chosen.sum() == 3
    assert frame[chosen][["median_ms", "iqr_ms", "speedup"]].isna().all(axis=None)
    assert frame[~chosen][["median_ms", "iqr_ms", "speedup"]].notna().all(axis=None)
    assert (frame[["wall_ms_1", "wall_ms_32"]] > 0).all(axis=None)
    assert set(frame[frame["peak_bytes"].isna()]["method"]) == {"int8"}
    assert frame[chosen]["heads"].between(1, 8).all()


def test_routed_texts_cost_no_more_than_the_fixed_budget_on_validation(compared):
    work = work_folder(compared) / "seed-0"
    data = small_data(0)
    tokenizer = synthetic_tokenizer()
    train, validation = (encode(split, tokenizer) for split in (data.train.subset(80, 0), data.validation))
    contestants = Contestants(lambda: (None, tokenizer), (train, validation), replace(TRAINING, ffn=True), work)
    for setting in (Setting(0.5), Setting(0.5, 0.5), Setting(0.3, 0.2)):
        climbed = contestants.per_text("routed", setting)(validation["input_ids"], 7)
        fixed = contestants.model("budgeted", setting).config
        lengths = [len(row) for row in validation["input_ids"]]
        dense = contestants.model("dense", Setting(1.0)).config
        spent = sum(cost * flops(dense, n).encoder for cost, n in zip(climbed.costs, lengths, strict=True))
        assert spent <= sum(flops(fixed, n).encoder for n in lengths) * (1 + 1e-9)


def test_a_model_is_compared_with_ours_text_by_text(compared):
    frame = read_results(compared)
    ours = frame[frame["method"] == "budgeted"].set_index(["budget", "ffn_budget"])["accuracy"]
    for row in frame.to_dict("records"):
        gained = (row["only_this"] - row["only_ours"]) / row["test_texts"]
        assert row["accuracy"] - ours[row["budget"], row["ffn_budget"]] == pytest.approx(gained, abs=1e-9)
    assert set(frame[frame["method"] == "budgeted"]["only_ours"]) == {0}


def test_the_dense_model_is_what_all_times_are_compared_with(compared):
    frame = read_results(compared).set_index("method")
    assert frame.loc["dense", "speedup"] == 1.0
    assert (frame["median_ms"].dropna() > 0).all()


def test_going_on_trains_nothing_twice_and_adds_a_seed(compared, monkeypatch, tmp_path):
    before = read_results(compared)
    steps = []
    whole = BudgetTrainer.training_step
    monkeypatch.setattr(
        BudgetTrainer, "training_step", lambda self, *rest, **more: steps.append(1) or whole(self, *rest, **more)
    )
    compare(compared, resume=True)
    assert not steps
    pd.testing.assert_frame_equal(read_results(compared), before)
    compare(compared, seeds="0,7", methods="static", resume=True)
    after = read_results(compared)
    assert set(after["seed"]) == {0, 7}
    assert len(after) == 2 * (1 + 3 + 2)
    write_results(compared, [ResultRow(**row) for row in before.to_dict("records")])


def test_a_stopped_comparison_ends_with_the_same_answers(compared, monkeypatch, tmp_path):
    whole, left = BudgetTrainer.training_step, [13]

    def step(self, *rest, **more):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return whole(self, *rest, **more)

    monkeypatch.setattr(BudgetTrainer, "training_step", step)
    out = tmp_path / "tiny.csv"
    with pytest.raises(KeyboardInterrupt):
        compare(out, methods="static,random")
    assert not out.exists()
    with pytest.raises(TrainingError, match="add --resume"):
        compare(out, methods="static,random")
    compare(out, methods="static,random", resume=True)
    names = ["method", "budget", "ffn_budget", "accuracy", "macro_f1", "only_ours", "only_this", "examples_seen"]
    rows, expected = read_results(out)[names], read_results(compared)[names]
    merged = rows.merge(expected, how="left", indicator=True)
    assert set(merged["_merge"]) == {"both"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"methods": "static,magic"}, "There is no method 'magic' to compare with: choose from dense, int8, smaller"),
        ({"seeds": "0;1"}, "The seeds '0;1' are not usable: write whole numbers such as 0,1,2."),
        ({"budgets": "0.5,2"}, "The budget '2' is not usable"),
        ({"limit": 0}, "0 examples are none to work with"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path, options, sentence):
    with pytest.raises(BBAError) as caught:
        compare(tmp_path / "out.csv", **options)
    assert str(caught.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_results_are_not_written_over_by_mistake(compared):
    with pytest.raises(DataError, match="exists already: add --resume"):
        compare(compared)


# Rankings and plans


def test_magnitude_is_the_norm_of_all_weights_of_a_head_and_a_neuron(two_dials):
    heads, neurons = magnitude(two_dials)
    weights, size = two_dials.state_dict(), two_dials.config.head_size
    layer, head, neuron = 1, 2, 7
    prefix = f"encoder.layers.{layer}"
    width, rows = 4 * size, slice(head * size, (head + 1) * size)
    parts = [weights[f"{prefix}.attention.qkv.weight"][part * width : (part + 1) * width][rows] for part in range(3)]
    parts.append(weights[f"{prefix}.attention.output.weight"][:, rows])
    assert heads[layer][head].item() == pytest.approx(math.sqrt(sum(float(part.square().sum()) for part in parts)))
    ends = (weights[f"{prefix}.ffn.input.weight"][neuron], weights[f"{prefix}.ffn.output.weight"][:, neuron])
    assert neurons[layer][neuron].item() == pytest.approx(math.sqrt(sum(float(end.square().sum()) for end in ends)))


def test_chance_depends_on_the_seed_alone(two_dials):
    def flat(seed):
        return torch.cat([*chance(two_dials, seed)[0], *chance(two_dials, seed)[1]])

    assert torch.equal(flat(3), flat(3))
    assert not torch.equal(flat(3), flat(4))


def test_an_order_decides_what_stays_and_leaves_the_function(two_dials):
    import copy

    model = copy.deepcopy(two_dials)
    heads = [torch.zeros(4), torch.tensor([0.0, 5.0, 0.0, 4.0]), torch.tensor([0.0, 0.0, 3.0, 0.0])]
    neurons = [torch.rand(48, generator=torch.Generator().manual_seed(layer)) for layer in range(3)]
    set_order(model, (heads, neurons))
    assert plan_at(model, 0.25).heads == ((), (1, 3), (2,))
    ids = torch.randint(1, model.config.vocab_size, (3, 9))
    assert torch.allclose(model(ids).logits, two_dials(ids).logits, atol=1e-5)


@pytest.mark.parametrize(
    ("budget", "counts"), [(0.25, [1, 1, 1]), (0.5, [2, 2, 2]), (0.7, [2, 3, 3]), (0.1, [0, 0, 1])]
)
def test_a_smaller_model_has_its_heads_spread_evenly(two_dials, budget, counts):
    plan = even_plan(two_dials, Setting(budget, 0.5))
    assert [len(kept) for kept in plan.heads] == counts
    assert plan.num_blocks == 4
    assert even_plan(two_dials, Setting(budget)).num_blocks == 9


# Statistics


def row(method, seed, accuracy, validation=0.5, **others):
    values = {
        "task": "agnews", "backbone": "word", "budget": 0.5, "ffn_budget": 1.0, "heads": 4, "blocks": 0, "cost": 0.5,
        "encoder_cost": 0.8, "flops": 10, "parameters": 20, "test_texts": 100, "accuracy_low": 0.0,
        "accuracy_high": 1.0, "macro_f1": 0.5, "only_ours": 0, "only_this": 0, "training_texts": 30,
        "examples_seen": 90, "training_seconds": 60.0, "shared_seconds": 0.0, "median_ms": 2.0, "iqr_ms": 0.1,
        "speedup": 1.2, "wall_ms_1": 2.0, "wall_ms_32": 40.0, "peak_bytes": 2e6,
        "cpu": "a CPU", "threads": 1, "batch": 1, "length": 64, "rounds": 15,
    }  # fmt: skip
    ours = {"method": method, "seed": seed, "accuracy": accuracy, "validation_accuracy": validation}
    return ResultRow(**{**values, **ours, **others})


def frame_of(*rows):
    from dataclasses import asdict

    return pd.DataFrame([asdict(one) for one in rows])


@pytest.mark.parametrize(("one", "other", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 2 / 32), (1, 5, 14 / 64)])
def test_mcnemar_by_hand(one, other, p):
    assert mcnemar(one, other) == mcnemar(other, one) == pytest.approx(p)


def test_a_summary_has_means_spreads_and_the_difference_to_ours():
    rows = [row("budgeted", seed, 0.9) for seed in range(3)]
    rows += [row("static", seed, 0.9 + gain / 100, only_this=gain) for seed, gain in enumerate((0, 1, 5))]
    summary = summarise(frame_of(*rows)).set_index("method")
    static = summary.loc["static"]
    assert static["accuracy"] == pytest.approx(0.92)
    assert static["difference"] == pytest.approx(0.02)
    assert static["difference_sd"] == pytest.approx(math.sqrt(7) / 100)
    assert static["difference_half"] == pytest.approx(4.302653 * math.sqrt(7 / 3) / 100, rel=1e-5)
    assert (static["smallest_p"], static["largest_p"]) == (pytest.approx(2 / 32), 1.0)
    assert math.isnan(summarise(frame_of(rows[0], rows[3]))["difference_half"].iloc[1])


def test_the_best_specialist_is_chosen_on_validation():
    rows = [row("budgeted", 0, 0.99, 0.99), row("static", 0, 0.8, 0.7), row("smaller", 0, 0.7, 0.8)]
    assert list(best_specialists(summarise(frame_of(*rows)))["method"]) == ["smaller"]


def test_training_counts_once_what_serves_all_settings():
    rows = [row("budgeted", 0, 0.9, budget=b, training_seconds=600.0, shared_seconds=600.0) for b in (0.25, 0.5)]
    rows += [row("static", 0, 0.9, budget=b, training_seconds=400.0, shared_seconds=100.0) for b in (0.25, 0.5)]
    costs = training_cost(frame_of(*rows)).set_index("method")
    assert costs.loc["budgeted"].to_dict() == {"models": 1, "minutes": 10}
    assert costs.loc["static"].to_dict() == {"models": 2, "minutes": pytest.approx(700 / 60)}


# The page and the file


def test_the_page_tells_what_was_compared_and_where_ours_loses(tmp_path):
    rows = [row("budgeted", seed, 0.9) for seed in range(2)]
    rows += [row("static", seed, 0.95, only_this=5) for seed in range(2)]
    rows += [row("random", seed, 0.92 - seed * 0.01, only_this=2 - seed) for seed in range(2)]
    write_results(tmp_path / "news.csv", rows)
    page = results_page([tmp_path / "news.csv"])
    assert "## news\n" in page
    assert "30 training texts, 100 test texts; seeds 0, 1; 90 examples seen" in page
    assert "**Where ours loses**, in points: static at 0.5 by 5.00; random at 0.5 by 1.50 (within the noise)." in page
    assert "| static | 95.00 % ± 0.00 | +5.00 (+5.00 to +5.00) | 0.062 | 0.800 | 2.00 ms | 1.20x |" in page


def test_the_page_is_written_with_the_results(compared):
    page = (compared.parents[1] / "RESULTS.md").read_text(encoding="utf-8")
    assert "## tiny\n" in page
    assert page.count("\n| **budgeted** |") == 3
    assert page.count("| routed |") == 2 * 2 + 1 + 1  # Two settings in two tables each, its words, and its training.
    assert "### A budget for each text" in page


def test_no_results_and_damaged_results_are_one_sentence(tmp_path, compared):
    with pytest.raises(DataError, match="run `python -m bba compare` first"):
        results_page([])
    damaged = tmp_path / "damaged.csv"
    damaged.write_text("task,backbone\na,b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"lack the columns method, seed, .*run `python -m bba compare` again"):
        read_results(damaged)
    whole = compared.read_text(encoding="utf-8")
    for content in (whole.partition("\n")[0] + "\n", whole[:-30], whole + "x\n"):
        damaged.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match="are cut off or hold something else than rows"):
            read_results(damaged)
    damaged.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_results(damaged)


def test_results_survive_the_file(tmp_path):
    rows = [row("static", 3, 1 / 3, task='my, odd "task"')]
    write_results(tmp_path / "a" / "b.csv", rows)
    assert [ResultRow(**values) for values in read_results(tmp_path / "a" / "b.csv").to_dict("records")] == rows
    assert check_methods(None) == list(METHODS)
    assert replace(rows[0]).setting == Setting(0.5)
