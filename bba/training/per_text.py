"""Methods of a comparison that spend on each text what it needs: BudgetFormer, and routing over nested budgets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bba.backends import Runner, Variants
from bba.measure.budgetformer import encoder_share_of
from bba.measure.ladder import Rung
from bba.measure.walltime import Rows
from bba.model import BBAConfig, BudgetFormerForSequenceClassification, SequenceClassifier
from bba.model.budgetformer_inference import Chosen, choose_and_classify
from bba.pruning.cost import USUAL_LENGTH, chosen_flops, encoder_share, flops
from bba.pruning.plan import plan_at
from bba.pruning.surgery import pruned_config
from bba.routing import Climb, climb

BATCH = 64
"""Texts at a time where nothing is timed; it changes no answer and no cost."""


@dataclass(frozen=True)
class Spent:
    """What a method said of a split's texts, and what they cost on average."""

    answers: np.ndarray
    """The class given to each text, shape (texts,)."""
    heads: float
    blocks: float
    encoder_cost: float
    """Share of the dense encoder's FLOPs if all texts had 64 tokens."""
    flops: int
    """FLOPs of a text if all had the length that is timed."""


class Former:
    """A BudgetFormer.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: BudgetFormerForSequenceClassification) -> None:
        self.model = model

    def __call__(self, rows: Rows, batch_size: int) -> Chosen:
        """Classify token lists, so many at a time."""
        return choose_and_classify(self.model, rows, batch_size)

    def spent(self, rows: Rows, length: int) -> Spent:
        """Classify token lists; `length` is in tokens."""
        chosen, config = self(rows, BATCH), self.model.config
        counts = chosen.counts.tolist()
        return Spent(
            answers=chosen.logits.argmax(dim=1).numpy(),
            heads=float(chosen.counts.sum(dim=1).double().mean()),
            blocks=0.0,
            encoder_cost=encoder_share_of(config, counts, [USUAL_LENGTH] * len(rows)),
            flops=round(np.mean([chosen_flops(config, heads, length).total for heads in counts])),
        )


class Router:
    """A budgeted model whose texts climb a ladder of budgets.

    Args:
        model: the budgeted model, in evaluation mode.
        ladder: rungs from cheap to dear.
    """

    def __init__(self, model: SequenceClassifier, ladder: Sequence[Rung]) -> None:
        self.model, self.ladder, self.variants = model, ladder, Variants(model)

    def __call__(self, rows: Rows, batch_size: int) -> Climb:
        """Classify token lists, so many at a time."""
        return climb(self._at, rows, self.ladder, batch_size)

    def _at(self, budget: float, ffn_budget: float) -> tuple[Runner, BBAConfig]:
        plan = plan_at(self.model, budget, ffn_budget)
        return self.variants.running(plan), pruned_config(self.model.config, plan)

    def spent(self, rows: Rows, length: int) -> Spent:
        """Classify token lists; every rung that a text was tried on counts. `length` is in tokens."""
        climbed = self(rows, BATCH)
        configs = [self._at(*rung.setting)[1] for rung in self.ladder]
        stay = np.bincount(climbed.rungs, minlength=len(configs)) / len(rows)
        reach = stay[::-1].cumsum()[::-1]
        return Spent(
            answers=climbed.probabilities.argmax(dim=1).numpy(),
            heads=float(stay @ [config.num_kept_heads for config in configs]),
            blocks=float(stay @ [config.num_kept_blocks for config in configs]),
            encoder_cost=float(reach @ [encoder_share(config) for config in configs]),
            flops=round(float(reach @ [flops(config, length).total for config in configs])),
        )
