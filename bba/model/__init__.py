"""The model: configuration, encoder and classifier, gates."""

from typing import TYPE_CHECKING, Any

from bba.model.configuration import BBAConfig, BudgetFormerConfig
from bba.model.gates import BudgetGates, units_at
from bba.model.modeling import SequenceClassifier
from bba.model.setting import Setting, check_budget

if TYPE_CHECKING:
    from bba.model.budgetformer import BudgetFormerForSequenceClassification
    from bba.model.pretrained import BBAForSequenceClassification

__all__ = [
    "BBAConfig",
    "BBAForSequenceClassification",
    "BudgetFormerConfig",
    "BudgetFormerForSequenceClassification",
    "BudgetGates",
    "SequenceClassifier",
    "Setting",
    "check_budget",
    "units_at",
]


def __getattr__(name: str) -> Any:
    """Import transformers' kind of model when it is first asked for: classifying does not wait for it."""
    if name == "BBAForSequenceClassification":
        from bba.model import pretrained

        return pretrained.BBAForSequenceClassification
    if name == "BudgetFormerForSequenceClassification":
        from bba.model import budgetformer

        return budgetformer.BudgetFormerForSequenceClassification
    raise AttributeError(f"module 'bba.model' has no attribute {name!r}")
