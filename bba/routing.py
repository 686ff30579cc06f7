"""Budget routing: each text goes to one of a few nested budgets of one model, the cheapest first.

Early exit by confidence is an old idea (a cascade of classifiers; for depth, BranchyNet, Teerapittayanon et al. 2016).
Here the steps are budgets of one checkpoint, and each group of texts runs on a really pruned model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bba.backends import Runner
from bba.measure.ladder import DECIMALS, Rung
from bba.model import BBAConfig
from bba.pruning.cost import encoder_share


@dataclass(frozen=True)
class Climb:
    """How texts went up a ladder."""

    probabilities: Tensor
    """Calibrated, from the rung where each text stayed, shape (texts, labels)."""
    rungs: list[int]
    """The rung where each text stayed."""
    tried: list[list[Tensor]]
    """For each text, the calibrated probabilities on every rung up to there, each of shape (labels,)."""
    costs: list[float]
    """For each text, FLOPs of all rungs it was run on, over those of the dense encoder."""


def stays(confidence: Tensor, threshold: float) -> Tensor:
    """Return which texts may stay on a rung, shape as `confidence`: those at least as sure as its threshold."""
    return confidence.round(decimals=DECIMALS) >= threshold


def climb(
    at: Callable[[float, float], tuple[Runner, BBAConfig]],
    rows: Sequence[Sequence[int]],
    ladder: Sequence[Rung],
    batch_size: int = 64,
) -> Climb:
    """Classify token lists, each at the first budget of a ladder at which the model is sure enough.

    Args:
        at: gives what runs the model pruned to a head budget and an FFN budget, and that model's configuration.
        rows: token ids of each text.
        ladder: rungs from cheap to dear.
        batch_size: texts at a time; it changes neither budgets nor answers.
    """
    tried: list[list[Tensor]] = [[] for _ in rows]
    costs = [0.0] * len(rows)
    left = list(range(len(rows)))
    for rung in ladder:
        if not left:
            break
        runner, config = at(*rung.setting)
        logits = runner.logits_of([rows[row] for row in left], batch_size)
        probabilities = (logits / rung.temperature).softmax(dim=-1)
        shares = {length: encoder_share(config, length) for length in {len(rows[row]) for row in left}}
        for row, values in zip(left, probabilities, strict=True):
            tried[row].append(values)
            costs[row] += shares[len(rows[row])]
        stay = stays(probabilities.max(dim=-1).values, rung.threshold)
        left = [row for row, done in zip(left, stay.tolist(), strict=True) if not done]
    return Climb(
        probabilities=torch.stack([steps[-1] for steps in tried]),
        rungs=[len(steps) - 1 for steps in tried],
        tried=tried,
        costs=costs,
    )
