import threading
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from filelock import FileLock

from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError, CheckpointError, MeasureError
from bba.measure import latency as latency_module
from bba.measure.latency import LatencySettings, measure_latency
from bba.measure.metrics import GRID, PAIRS, grid, score, score_budgets, score_without_attention, wilson
from bba.measure.report import Report
from bba.model import Setting
from bba.pruning.cost import encoder_share, predicted_speedup
from bba.pruning.surgery import prune_to
from bba.training.stages import encode


@pytest.fixture(scope="module")
def examples(tokenizer):
    data = encode(synthetic_split(100, "measure"), tokenizer)
    return data["input_ids"], data["labels"]


# Accuracy


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),  # Newcombe 1998, table I, method 3, and the formula by hand.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
        (10, 10, 0.7225, 1.0),
    ],
)
def test_intervals_are_wilsons(correct, total, low, high):
    assert wilson(correct, total) == pytest.approx((low, high), abs=5e-5)


def test_the_grid_is_twenty_budgets_up_to_1():
    assert [f"{setting.budget:.2f}" for setting in GRID] == [f"{step * 0.05:.2f}" for step in range(1, 21)]
    assert {setting.ffn_budget for setting in GRID} == {1.0}
    assert GRID[-1] == (1, 1)


def test_scores_are_those_of_the_gated_model(two_dials, examples):
    rows, labels = examples
    for row in score_budgets(
        two_dials, rows, labels, [Setting(0.05), Setting(0.3, 0.5), Setting(1.0, 0.1), Setting(1.0)]
    ):
        gates, blocks = two_dials.gates.hard(row.budget), two_dials.ffn_gates.hard(row.ffn_budget)
        with torch.no_grad():
            outputs = [two_dials(torch.tensor([ids]), head_gates=gates, ffn_gates=blocks) for ids in rows]
        answers = [int(output.logits.argmax()) for output in outputs]
        right = [answer == label for answer, label in zip(answers, labels, strict=True)]
        assert row.accuracy == pytest.approx(sum(right) / 100)
        assert (row.accuracy_low, row.accuracy_high) == wilson(sum(right), 100)
        assert row.heads == gates.sum().item()
        assert row.blocks == blocks.sum().item()
        assert row.cost == row.heads / 12
        assert row.encoder_cost == encoder_share(prune_to(two_dials, *row.setting).config)
        recalls = []
        for label in range(4):
            of_label = [hit for hit, truth in zip(right, labels, strict=True) if truth == label]
            recalls.append(sum(of_label) / len(of_label))
        assert row.recall == pytest.approx(recalls)


def test_macro_f1_counts_a_class_that_is_never_answered_as_0(model):
    rows, labels = [[2, 5, 3]] * 4, [0, 1, 2, 3]  # One text: one answer, right once.
    row = score(model, rows, labels)
    assert row.accuracy == 0.25
    assert sorted(row.recall) == [0, 0, 0, 1]
    assert row.macro_f1 == pytest.approx(0.4 / 4)  # Of the class answered: precision 1/4, recall 1.


def test_classes_that_are_not_in_the_data_keep_their_place(model):
    row = score(model, [[2, 5, 3], [2, 6, 3]], [1, 1])
    assert len(row.recall) == len(PEOPLE)
    assert 0 <= row.macro_f1 <= 1


def test_without_attention_there_is_no_head(model, examples):
    row = score_without_attention(model, *examples)
    assert (row.budget, row.heads, row.cost) == (0, 0, 0)


def test_progress_ends_at_1_and_never_falls(model, examples):
    heard = []
    score_budgets(model, *examples, [Setting(quarter / 4) for quarter in (1, 2, 3, 4)], heard.append)
    assert heard == [0.25, 0.5, 0.75, 1]


def test_a_pruned_model_is_not_scored_beyond_what_it_has(model, examples):
    with pytest.raises(BudgetError, match="was pruned to 6 of 12"):
        score_budgets(prune_to(model, 0.5), *examples, [Setting(0.25), Setting(1.0)])


def test_the_grid_is_what_a_model_serves(model, two_dials):
    assert grid(model.config) == list(GRID)
    assert grid(two_dials.config) == list(PAIRS)
    assert grid(prune_to(model, 0.5).config) == list(GRID[:10])
    smaller = grid(prune_to(two_dials, 0.5, 1 / 3).config)
    assert smaller == [(b, f) for f in (0.1, 0.25, 1.0) for b in (0.1, 0.25, 0.5)]
    assert grid(prune_to(two_dials, 0.01, 0.01).config) == [(1 / 12, 1 / 9)]


# Latency


QUICK = LatencySettings(length=8, rounds=3)


def test_rows_are_the_model_the_budgets_and_the_ceiling(model):
    heard = []
    measured = measure_latency(model, [Setting(0.25), Setting(0.5), Setting(1.0)], QUICK, heard.append)
    assert [(row.budget, row.heads) for row in measured.rows] == [(1, 12), (0.25, 3), (0.5, 6), (0, 0)]
    assert (measured.batch, measured.length, measured.threads, measured.rounds) == (1, 8, 1, 3)
    assert measured.torch == torch.__version__
    assert measured.cpu
    assert measured.rows[0].speedup == measured.rows[0].predicted_speedup == 1
    assert measured.rows[2].predicted_speedup == predicted_speedup(prune_to(model, 0.5).config, model.config, 8)
    assert all(row.median_ms > 0 and row.iqr_ms >= 0 and row.ffn_budget == 1 for row in measured.rows)
    assert heard == pytest.approx([1 / 3, 2 / 3, 1])


def test_rows_of_pairs(two_dials):
    asked = [Setting(0.5, 0.5), Setting(1.0, 1 / 3), Setting(0.25), Setting(1.0)]
    measured = measure_latency(two_dials, asked, QUICK)
    kept = [(row.budget, row.ffn_budget, row.heads, row.blocks) for row in measured.rows]
    assert kept == [(1, 1, 12, 9), (0.5, 0.5, 6, 4), (1, 1 / 3, 12, 3), (0.25, 1, 3, 9), (0, 1, 0, 9)]
    for row in measured.rows[1:-1]:
        expected = predicted_speedup(prune_to(two_dials, *row.setting).config, two_dials.config, 8)
        assert row.predicted_speedup == expected
    assert measured.ceiling == measured.rows[-1]


def test_the_first_row_of_a_pruned_model_is_what_it_has(model):
    measured = measure_latency(prune_to(model, 0.5), [Setting(0.25)], QUICK)
    assert [(row.budget, row.heads) for row in measured.rows] == [(0.5, 6), (0.25, 3), (0, 0)]


def test_figures_are_medians_over_rounds_and_ratios_within_a_round(model, monkeypatch):
    times = np.array([[10.0, 5.0, 2.0], [20.0, 5.0, 4.0], [40.0, 8.0, 4.0]])
    monkeypatch.setattr(latency_module, "time_in_turn", lambda *arguments: times)
    dense, half, none = measure_latency(model, [Setting(0.5)], QUICK).rows
    assert [row.median_ms for row in (dense, half, none)] == [20, 5, 4]
    assert [row.speedup for row in (dense, half, none)] == [1, 4, 5]
    assert dense.iqr_ms == 30


def test_one_round_has_no_spread(model):
    assert {row.iqr_ms for row in measure_latency(model, [Setting(0.5)], replace(QUICK, rounds=1)).rows} == {0.0}


def test_measuring_leaves_the_model_and_the_number_of_threads_as_they_were(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.set_num_threads(2)
    try:
        measure_latency(model, [Setting(0.5)], QUICK)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_second_measurement_waits_and_says_so(model, monkeypatch):
    inside, said, timing, go_on = [], threading.Event(), threading.Event(), threading.Event()
    most = []

    def slow(models, vocab_size, settings, progress):
        inside.append(1)
        most.append(len(inside))
        timing.set()
        go_on.wait(20)
        inside.pop()
        return np.ones((settings.rounds, len(models)))

    monkeypatch.setattr(latency_module, "time_in_turn", slow)
    started = []

    def measure(name):
        started.append(
            measure_latency(model, [Setting(0.5)], QUICK, waiting=lambda: (said.set(), started.append(name)))
        )

    threads = [threading.Thread(target=measure, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    assert said.wait(20)
    assert timing.wait(20)
    assert len([entry for entry in started if isinstance(entry, str)]) == 1
    assert most == [1]
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert most == [1, 1]
    assert len(started) == 3  # Two measurements, one of which had to wait.


def test_waiting_ends_in_advice(model, monkeypatch):
    monkeypatch.setattr(latency_module, "MAX_WAIT_SECONDS", 0.1)
    with FileLock(latency_module.LOCK), pytest.raises(MeasureError, match="wait for it to end, or delete"):
        measure_latency(model, [Setting(0.5)], QUICK)


def test_a_failed_measurement_frees_the_place(model, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(latency_module, "time_in_turn", fail)
        with pytest.raises(KeyboardInterrupt):
            measure_latency(model, [Setting(0.5)], QUICK)
    measure_latency(model, [Setting(0.5)], QUICK, waiting=lambda: pytest.fail("had to wait"))


def test_texts_longer_than_the_model_reads_are_refused(model):
    with pytest.raises(MeasureError) as caught:
        measure_latency(model, [Setting(0.5)], LatencySettings(length=33))
    assert str(caught.value) == "--length 33 is more than the 32 tokens this model reads: ask for fewer."


@pytest.mark.parametrize("name", ["batch", "length", "threads", "rounds"])
@pytest.mark.parametrize("value", [0, -3])
def test_settings_below_1_are_refused(name, value):
    with pytest.raises(MeasureError) as caught:
        LatencySettings(**{name: value})
    assert str(caught.value) == f"--{name} is {value}: give a whole number of at least 1."


# The report


def test_a_report_survives_json(report):
    import json

    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert report.budgets() == [setting.budget for setting in GRID]
    assert report.ffn_budgets == [1.0]
    assert report.row(0.5) in report.test
    with pytest.raises(KeyError):
        report.row(0.51)


@pytest.mark.parametrize("part", ["test", "latency", "labels", "no_attention"])
def test_a_report_without_a_part_is_refused(report, part):
    values = asdict(report)
    del values[part]
    with pytest.raises(CheckpointError, match="is not complete"):
        Report.from_json(values)
