"""Choosing a setting by what was measured: the best within a latency target, the fastest, and those that none beats."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from bba.errors import MeasureError
from bba.measure.report import BudgetRow, Latency
from bba.model import Setting

_NUMBER = r"(\d+(?:[.,]\d*)?|[.,]\d+)"
_UNIT = r"(ms|milliseconds?|s|sec|seconds?|us|µs|μs|microseconds?)?"
_TIME = re.compile(_NUMBER + r"\s*" + _UNIT, re.IGNORECASE)
_PER_UNIT = {"m": 1.0, "s": 1e3, "u": 1e-3, "µ": 1e-3, "μ": 1e-3}
"""Milliseconds in a unit, by its first letter; "microseconds" is told apart in `_factor`."""


class Candidate(NamedTuple):
    """A setting with what it takes and what it reaches."""

    setting: Setting
    median_ms: float
    iqr_ms: float
    accuracy: float
    """On the rows given, which are those of the validation split wherever something is chosen."""


def candidates(latency: Latency, rows: Sequence[BudgetRow]) -> list[Candidate]:
    """Return the settings that were both timed and scored, the fastest first."""
    scored = {row.setting: row.accuracy for row in rows}
    found = [
        Candidate(row.setting, row.median_ms, row.iqr_ms, scored[row.setting])
        for row in latency.rows
        if row.setting in scored
    ]
    return sorted(found, key=lambda candidate: candidate.median_ms)


def fastest(latency: Latency, rows: Sequence[BudgetRow]) -> Candidate:
    """Return the setting that took the least time.

    Raises:
        MeasureError: no setting was both timed and scored.
    """
    found = candidates(latency, rows)
    if not found:
        raise MeasureError("No setting was both timed and scored, so none can be chosen: measure some first.")
    return found[0]


def best_within(latency: Latency, rows: Sequence[BudgetRow], target_ms: float) -> Candidate | None:
    """Return the most accurate setting that took no more than a time; of equally accurate ones the fastest.

    Args:
        latency: a measurement on the machine that the target is for.
        rows: accuracy per setting, of the validation split: test texts are no part of a choice.
        target_ms: the most that a call may take, in milliseconds.

    Returns:
        The choice, or None if every setting took longer.
    """
    within = [candidate for candidate in candidates(latency, rows) if candidate.median_ms <= target_ms]
    return max(within, key=lambda candidate: candidate.accuracy, default=None)  # Of ties the first, the fastest.


def unbeaten(times: Sequence[float], accuracies: Sequence[float]) -> list[bool]:
    """Return for each point whether no other is at least as fast and as accurate, and better in one of the two."""
    points = list(zip(times, accuracies, strict=True))
    return [
        not any(
            other_time <= time and other >= accuracy and (other_time, other) != (time, accuracy)
            for other_time, other in points
        )
        for time, accuracy in points
    ]


def parse_milliseconds(text: str) -> float:
    """Return a time in milliseconds as people write it: `4`, `4 ms`, `4,5 ms`, `0.004 s`, `900 µs`.

    Raises:
        MeasureError: it is no time above 0.
    """
    match = _TIME.fullmatch(text.strip())
    value = float(match[1].replace(",", ".")) * _factor(match[2] or "ms") if match else math.nan
    if not 0 < value < math.inf:
        shown = text if len(text) <= 40 else f"{text[:39]}…"
        raise MeasureError(f"The latency target {shown!r} is not usable: give a time above 0, such as 4 ms or 0.004 s.")
    return value


def _factor(unit: str) -> float:
    """Return how many milliseconds a unit has."""
    unit = unit.lower()
    return 1e-3 if unit.startswith("micro") else _PER_UNIT[unit[0]]
