"""A setting of the two dials: head budget b and FFN budget f, written `b` or `b:f`."""

import math
from typing import NamedTuple

from bba.errors import BudgetError


def check_budget(budget: float | str) -> float:
    """Return `budget` as a float, or say what a budget is.

    Raises:
        BudgetError: it is not a finite number in (0, 1].
    """
    try:
        value = float(budget)
    except (TypeError, ValueError):
        value = math.nan
    if not 0.0 < value <= 1.0:
        raise BudgetError(
            f"The budget {budget!r} is not usable: give a number above 0 and up to 1, such as 0.5 for half the heads."
        )
    return value


class Setting(NamedTuple):
    """What a caller asks for: which share of the heads, and which of the feed-forward blocks."""

    budget: float
    """Head budget b in (0, 1]."""
    ffn_budget: float = 1.0
    """FFN budget f in (0, 1]; at 1 only attention is cut, as in the papers."""

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Return a setting as it is typed: `0.5`, or `0.5:0.25`.

        Raises:
            BudgetError: it is not one number, or two with a colon between, each in (0, 1].
        """
        parts = text.split(":")
        if "," in text or len(parts) > 2:
            raise BudgetError(
                f"The budget {text!r} is not usable: write one number with a decimal point, such as 0.5, or two with a "
                "colon between, such as 0.5:0.25 for half the heads and a quarter of the feed-forward part."
            )
        return cls(*(check_budget(part) for part in parts))

    def __str__(self) -> str:
        return f"{self.budget:g}" if self.ffn_budget == 1 else f"{self.budget:g}:{self.ffn_budget:g}"
