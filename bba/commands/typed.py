"""Budgets as people type them."""

from typing import TYPE_CHECKING

from bba.errors import BudgetError

if TYPE_CHECKING:
    from bba.model import Setting
    from bba.predict import BudgetedClassifier


def asked_for(budget: str | None, ffn_budget: str | None) -> tuple[float | None, float]:
    """Return head and FFN budget as they are typed; no head budget asks for all heads that are there.

    Raises:
        BudgetError: one is not a number in (0, 1], or the FFN budget is given twice.
    """
    from bba.model import Setting

    typed = None if budget is None else Setting.parse(budget)
    ffn = None if ffn_budget is None else Setting.parse(ffn_budget)
    if ffn is not None and (ffn.ffn_budget != 1 or (typed is not None and typed.ffn_budget != 1)):
        raise BudgetError(f"The FFN budget is given twice: write --budget {budget}, or --ffn-budget beside one number.")
    return typed and typed.budget, ffn.budget if ffn else typed.ffn_budget if typed else 1.0


def settings_for(text: str | None, classifier: "BudgetedClassifier") -> "list[Setting]":
    """Return settings as they are typed, or the measured grid as far as the checkpoint serves it."""
    from bba.measure.metrics import grid
    from bba.model import Setting

    if text is not None:
        return [Setting.parse(part.strip()) for part in text.split(",")]
    return grid(classifier.checkpoint.model.config)
