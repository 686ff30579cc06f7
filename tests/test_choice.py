import pytest

from bba.errors import BBAError
from bba.measure.choice import best_within, candidates, fastest, parse_milliseconds, unbeaten
from bba.measure.report import BudgetRow, Latency, LatencyRow
from bba.model import Setting

TIMES = {Setting(1.0): 10.0, Setting(0.5): 6.0, Setting(0.25): 5.0, Setting(0.5, 0.5): 4.0, Setting(0.0): 3.0}
ACCURACIES = {Setting(1.0): 0.9, Setting(0.5): 0.9, Setting(0.25): 0.7, Setting(0.5, 0.5): 0.8}


@pytest.fixture
def latency():
    rows = [LatencyRow(*setting, 6, 0, time, 0.1, 10 / time, 1.0) for setting, time in TIMES.items()]
    return Latency("cpu", 1, 1, 64, 15, "2", "2026-01-01", rows)


@pytest.fixture
def scored():
    rest = {"accuracy_low": 0, "accuracy_high": 1, "macro_f1": 0.5, "recall": []}
    return [BudgetRow(*setting, 6, 0, 0.5, 0.5, accuracy=value, **rest) for setting, value in ACCURACIES.items()]


def test_only_what_was_timed_and_scored_can_be_chosen(latency, scored):
    assert [candidate.setting for candidate in candidates(latency, scored)] == [(0.5, 0.5), (0.25, 1), (0.5, 1), (1, 1)]
    assert fastest(latency, scored).setting == (0.5, 0.5)
    with pytest.raises(BBAError, match="measure some first"):
        fastest(latency, [])


@pytest.mark.parametrize(
    ("target", "setting"), [(100, (0.5, 1)), (6, (0.5, 1)), (5.9, (0.5, 0.5)), (4, (0.5, 0.5)), (3.9, None)]
)
def test_the_most_accurate_within_the_target_is_chosen_and_of_ties_the_fastest(latency, scored, target, setting):
    found = best_within(latency, scored, target)
    assert (found and found.setting) == setting


def test_unbeaten_points():
    assert unbeaten([10, 6, 5, 4], [0.9, 0.9, 0.7, 0.8]) == [False, True, False, True]
    assert unbeaten([4, 4, 5], [0.8, 0.8, 0.8]) == [True, True, False]  # Equal points do not beat each other.
    assert unbeaten([], []) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("4 ms", 4), (" 4,5 ms ", 4.5), ("0.004 s", 4), ("900µs", 0.9), (".5 MS", 0.5), ("2 seconds", 2000),
     ("3 milliseconds", 3), ("5 microseconds", 0.005), ("4.", 4)],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text, value):
    assert parse_milliseconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", " ", "0", "-4 ms", "fast", "4 km", "nan", "inf", "1.2.3", "4 ms 5", "9" * 400])
def test_what_is_no_time_gets_one_sentence(text):
    with pytest.raises(BBAError, match=r"^The latency target .* is not usable: give a time above 0") as caught:
        parse_milliseconds(text)
    assert len(str(caught.value)) < 140
