"""Ladders of nested budgets: a text starts on the cheapest rung and climbs while the model is unsure. Plain values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bba.errors import BudgetError
from bba.model import Setting

DECIMALS = 4
"""Probabilities are rounded to these before they are compared with a threshold: how a batch was padded changes their
last digits, and must not change a text's budget."""


@dataclass(frozen=True)
class Rung:
    """A setting that texts are tried at, and when they may stay there."""

    budget: float
    """Head budget."""
    ffn_budget: float
    """FFN budget; 1 where only attention is cut."""
    temperature: float
    """What logits are divided by, so that probabilities mean what they say; fitted on validation."""
    threshold: float
    """Least probability of the answer with which a text stays; 0 on the last rung, where all stay."""

    @property
    def setting(self) -> Setting:
        """The asked budgets."""
        return Setting(self.budget, self.ffn_budget)


@dataclass(frozen=True)
class Climbed:
    """What a ladder does to the texts of a split."""

    cost: float
    """FLOPs of all rungs that were run, over those of the dense encoder on the same texts."""
    accuracy: float
    accuracy_low: float
    """Lower end of the 95 % Wilson interval."""
    accuracy_high: float
    """Upper end of it."""
    shares: list[float]
    """Share of the texts that stay on each rung."""
    by_label: list[list[float]]
    """The same for the texts of each true label."""
    by_length: list[list[float]]
    """The same for texts of each range of lengths, see `Routing.lengths`; zeros where there is no text."""


@dataclass(frozen=True)
class Ladder:
    """Rungs from cheap to dear, chosen on validation; one rung alone is a fixed budget."""

    rungs: list[Rung]
    validation: Climbed
    test: Climbed


@dataclass(frozen=True)
class Fixed:
    """A setting that every text gets: what ladders compete with, and how far its probabilities mean what they say."""

    budget: float
    ffn_budget: float
    temperature: float
    test_cost: float
    """FLOPs over those of the dense encoder on the same test texts, as the cost of a ladder."""
    test_accuracy: float
    validation_before: float
    """Expected calibration error without the temperature."""
    validation_after: float
    """The same with it."""
    test_before: float
    test_after: float

    @property
    def setting(self) -> Setting:
        """The asked budgets."""
        return Setting(self.budget, self.ffn_budget)


@dataclass(frozen=True)
class Routing:
    """What is known about per-input budgets of a checkpoint."""

    lengths: list[int]
    """Longest text, in tokens, of each range of lengths."""
    fixed: list[Fixed]
    """Every measured setting for itself."""
    ladders: list[Ladder]
    """The most accurate one for each target cost, the cheapest first; each is more accurate on validation than the
    one before."""

    @property
    def test_errors(self) -> tuple[float, float]:
        """Expected calibration error on test before and after the temperature, means over the settings."""
        before = [row.test_before for row in self.fixed]
        return sum(before) / len(before), sum(row.test_after for row in self.fixed) / len(before)

    def within(self, target_cost: float) -> Ladder:
        """Return the most accurate ladder, on validation, whose mean cost there is no more than a target.

        Raises:
            BudgetError: the target is no share in (0, 1], or even the cheapest ladder costs more.
        """
        if not 0 < target_cost <= 1:
            raise BudgetError(f"The target cost {target_cost} is not usable: give a share above 0 and up to 1.")
        cheapest = self.ladders[0].validation.cost
        return self._choose(
            lambda ladder: ladder.validation.cost <= target_cost,
            -1,
            f"The target cost {target_cost:g} cannot be met: the cheapest budget of this checkpoint costs "
            f"{cheapest:.3f} of the dense encoder, so give at least that.",
        )

    def reaching(self, accuracy: float) -> Ladder:
        """Return the cheapest ladder whose accuracy on validation is at least a target.

        Raises:
            BudgetError: none reaches it.
        """
        best = self.ladders[-1].validation.accuracy
        return self._choose(
            lambda ladder: ladder.validation.accuracy >= accuracy,
            0,
            f"The target accuracy {accuracy:g} cannot be met: the best of this checkpoint is {best:.4f} on validation, "
            "so give at most that.",
        )

    def _choose(self, fits: Callable[[Ladder], bool], place: int, otherwise: str) -> Ladder:
        found = [ladder for ladder in self.ladders if fits(ladder)]
        if not found:
            raise BudgetError(otherwise)
        return found[place]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Routing":
        """Build it from plain values; KeyError or TypeError where they are something else."""
        ladders = [
            Ladder(
                [Rung(**rung) for rung in ladder["rungs"]], Climbed(**ladder["validation"]), Climbed(**ladder["test"])
            )
            for ladder in values["ladders"]
        ]
        return cls(values["lengths"], [Fixed(**row) for row in values["fixed"]], ladders)
