"""The model: configuration, encoder and classifier, gates. Importing it teaches transformers' Auto classes."""

from transformers import AutoConfig, AutoModelForSequenceClassification

from bba.model.budgetformer import BudgetFormerConfig, BudgetFormerForSequenceClassification
from bba.model.configuration import BBAConfig
from bba.model.gates import BudgetGates, units_at
from bba.model.modeling import BBAEncoder, BBAForSequenceClassification
from bba.model.setting import Setting, check_budget

AutoConfig.register(BBAConfig.model_type, BBAConfig)
AutoModelForSequenceClassification.register(BBAConfig, BBAForSequenceClassification)
AutoConfig.register(BudgetFormerConfig.model_type, BudgetFormerConfig)
AutoModelForSequenceClassification.register(BudgetFormerConfig, BudgetFormerForSequenceClassification)

__all__ = [
    "BBAConfig",
    "BBAEncoder",
    "BBAForSequenceClassification",
    "BudgetFormerConfig",
    "BudgetFormerForSequenceClassification",
    "BudgetGates",
    "Setting",
    "check_budget",
    "units_at",
]
