"""Choosing ladders of nested budgets on the validation split, and scoring them, once, on the test split."""

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd

from bba.measure.answers import Answers
from bba.measure.calibration import calibration_error, confidences, fit_temperature
from bba.measure.choice import unbeaten
from bba.measure.ladder import DECIMALS, Climbed, Fixed, Ladder, Routing, Rung
from bba.measure.metrics import wilson

TARGETS = tuple(round(step / 20, 2) for step in range(1, 21))
"""Mean costs that a ladder is chosen for."""
LEVELS = 24
"""Thresholds that are tried on a rung, besides 0: quantiles of the validation confidences."""
LENGTH_RANGES = 4
"""Ranges of text lengths, each with about as many test texts."""


Step = tuple[int, float]
"""Place of a setting, and the least confidence with which a text stays there."""


def find_routing(validation: Answers, test: Answers) -> Routing:
    """Calibrate every setting and choose a ladder for every target cost, both on validation alone.

    The test split is scored with what was chosen.
    """
    temperatures = [fit_temperature(logits, validation.labels) for logits in validation.logits]
    edges = np.quantile(test.lengths, np.arange(1, LENGTH_RANGES + 1) / LENGTH_RANGES, method="higher")
    lengths = sorted({int(edge) for edge in edges})
    ladders = []
    for steps in _best_ladders(validation, temperatures, TARGETS):
        rungs = _rungs(validation, temperatures, steps)
        sides = [_climbed(split, _confidence(split, temperatures), steps, lengths) for split in (validation, test)]
        ladders.append(Ladder(rungs, *sides))
    return Routing(lengths, _fixed(validation, test, temperatures), ladders)


def ladder_within(validation: Answers, target_cost: float) -> list[Rung]:
    """Return the most accurate ladder whose mean cost is at most a target that one of the settings meets."""
    temperatures = [fit_temperature(logits, validation.labels) for logits in validation.logits]
    steps = _best_ladders(validation, temperatures, [target_cost])[0]
    return _rungs(validation, temperatures, steps)


def _rungs(split: Answers, temperatures: Sequence[float], steps: Sequence[Step]) -> list[Rung]:
    return [Rung(*split.settings[place], temperatures[place], threshold) for place, threshold in steps]


def _confidence(split: Answers, temperatures: Sequence[float]) -> np.ndarray:
    """Return the calibrated probability of each answer, rounded as it is when texts climb, shape (settings, texts)."""
    pairs = zip(split.logits, temperatures, strict=True)
    return np.stack([confidences(logits, temperature) for logits, temperature in pairs]).round(DECIMALS)


def _fixed(validation: Answers, test: Answers, temperatures: Sequence[float]) -> list[Fixed]:
    ones = [1.0] * len(temperatures)
    errors = [
        [calibration_error(*pair) for pair in zip(_confidence(split, scale), split.right, strict=True)]
        for split in (validation, test)
        for scale in (ones, temperatures)
    ]
    costs = (test.encoder_flops().sum(axis=1) / test.dense_flops()).tolist()
    accuracies = test.right.mean(axis=1).tolist()
    rows = zip(validation.settings, temperatures, costs, accuracies, zip(*errors, strict=True), strict=True)
    return [Fixed(*setting, temperature, cost, accuracy, *four) for setting, temperature, cost, accuracy, four in rows]


def _best_ladders(split: Answers, temperatures: Sequence[float], targets: Sequence[float]) -> list[list[Step]]:
    """Return the most accurate ladder for each target cost, as far as it is more accurate than those that cost less."""
    found = _candidates(split, _confidence(split, temperatures)).sort_values(
        ["accuracy", "cost"], ascending=[False, True], kind="stable"
    )
    ladders, reached = [], -1.0
    for target in targets:
        affordable = found[found["cost"] <= target]
        if len(affordable) and affordable["accuracy"].iloc[0] > reached:
            best = affordable.iloc[0]
            reached = best["accuracy"]
            ladders.append(_steps(best))
    return ladders


def _steps(candidate: pd.Series) -> list[Step]:
    """Return a candidate's steps; what comes after one where all texts stay is idle."""
    steps = []
    for place, threshold in (("first", "leaves_first"), ("second", "leaves_second")):
        steps.append((int(candidate[place]), float(candidate[threshold])))
        if not candidate[threshold]:
            return steps
    return [*steps, (int(candidate["third"]), 0.0)]


def _candidates(split: Answers, confidence: np.ndarray) -> pd.DataFrame:
    """Return a row for every ladder of up to three rungs: the places of its settings, thresholds, accuracy, cost.

    Settings that another one beats, with no more cost and no less accuracy, are no rungs.
    """
    cost, accuracy = split.encoder_flops().sum(axis=1), split.right.mean(axis=1)
    is_good = unbeaten(cost.tolist(), accuracy.tolist())
    good = sorted((place for place, unbeaten_one in enumerate(is_good) if unbeaten_one), key=lambda place: cost[place])
    levels = {
        place: np.array([0.0, *np.unique(np.quantile(confidence[place], np.arange(1, LEVELS) / LEVELS))])
        for place in good
    }
    return pd.concat(_ladders_of(split, confidence, three, levels) for three in combinations_with_replacement(good, 3))


def _ladders_of(
    split: Answers, confidence: np.ndarray, places: tuple[int, ...], levels: dict[int, np.ndarray]
) -> pd.DataFrame:
    """Return the ladders of three settings with every pair of thresholds; see `_candidates`.

    Texts are counted in cells by the threshold levels that they reach on the first two rungs, so that each pair of
    thresholds is a sum over cells.
    """
    first, second, third = places
    reach = [np.digitize(confidence[place], levels[place][1:]) for place in (first, second)]

    def below(values: np.ndarray) -> np.ndarray:
        """Return sums over the texts under both thresholds, shape (levels + 1, levels + 1); the last: under any."""
        table = np.zeros((len(levels[first]) + 1, len(levels[second]) + 1))
        np.add.at(table, (reach[0] + 1, reach[1] + 1), values)
        sums: np.ndarray = table.cumsum(axis=0).cumsum(axis=1)
        return sums

    right, flops = split.right.astype(float), split.encoder_flops()
    climbed_right, climbed_flops = below(right[second]), below(flops[second])
    correct = right[first].sum() - below(right[first])[:-1, -1:] + climbed_right[:-1, -1:] - climbed_right[:-1, :-1]
    correct = correct + below(right[third])[:-1, :-1]
    cost = flops[first].sum() + climbed_flops[:-1, -1:] + below(flops[third])[:-1, :-1]
    grid = np.meshgrid(levels[first], levels[second], indexing="ij")
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "third": third,
            "leaves_first": grid[0].ravel(),
            "leaves_second": grid[1].ravel(),
            "accuracy": correct.ravel() / len(split.labels),
            "cost": cost.ravel() / split.dense_flops(),
        }
    )


def _climbed(split: Answers, confidence: np.ndarray, steps: Sequence[Step], lengths: Sequence[int]) -> Climbed:
    """Return what a ladder does to a split."""
    texts, flops = np.arange(len(split.labels)), split.encoder_flops()
    rung = np.zeros(len(texts), dtype=int)
    cost = np.zeros(len(texts))
    left = texts
    for number, (place, threshold) in enumerate(steps):
        rung[left] = number
        cost[left] += flops[place, left]
        left = left[confidence[place, left] < threshold]
    right = split.right[np.array([place for place, _ in steps])[rung], texts]
    low, high = wilson(int(right.sum()), len(texts))
    ranges = np.searchsorted(lengths, split.lengths)
    return Climbed(
        cost=float(cost.sum() / split.dense_flops()),
        accuracy=float(right.mean()),
        accuracy_low=low,
        accuracy_high=high,
        shares=_shares(rung, len(steps)),
        by_label=[_shares(rung[split.labels == label], len(steps)) for label in range(split.logits.shape[2])],
        by_length=[_shares(rung[ranges == number], len(steps)) for number in range(len(lengths))],
    )


def _shares(rungs: np.ndarray, count: int) -> list[float]:
    """Return the share of texts on each rung; zeros where there is no text."""
    shares: list[float] = (np.bincount(rungs, minlength=count) / max(1, len(rungs))).tolist()
    return shares
