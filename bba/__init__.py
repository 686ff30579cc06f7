"""Budgeted Attention: one Transformer text classifier whose attention cost is a dial."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bba.predict import BudgetedClassifier, Prediction

__all__ = ["BudgetedClassifier", "Prediction"]


def __getattr__(name: str) -> Any:
    """Import the classifier when it is first asked for: the command line's help does not wait for torch."""
    if name in __all__:
        from bba import predict

        return getattr(predict, name)
    raise AttributeError(f"module 'bba' has no attribute {name!r}")
