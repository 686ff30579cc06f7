"""Wall time and memory over real texts of their own lengths: what a model that chooses for each text is judged by."""

from collections.abc import Callable, Sequence

import numpy as np

from bba.measure.latency import LatencySettings, time_in_turn

Rows = Sequence[Sequence[int]]
"""Token ids of each text."""
Run = Callable[[Rows, int], object]
"""Classifies token lists, so many at a time; choices, grouping and second runs are in it."""
BATCHES = (1, 32)
"""Texts a batch, for which wall time is measured."""
TIMED_TEXTS = 64
ROUNDS = 15


def time_over_texts(runs: Sequence[Run], rows: Rows, batch: int) -> np.ndarray:
    """Let every run go over all texts in every round, in turn, on one thread; see `time_in_turn`.

    Returns:
        Milliseconds per batch, shape (rounds, runs).
    """
    calls = [lambda _, run=run: run(rows, batch) for run in runs]  # The token ids that are drawn are not looked at.
    times = time_in_turn(calls, 2, LatencySettings(rounds=ROUNDS), lambda done: None)
    return times / -(-len(rows) // batch)
