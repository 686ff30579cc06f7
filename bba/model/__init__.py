"""The model: configuration, encoder and classifier, head gates. Importing it teaches transformers' Auto classes."""

from transformers import AutoConfig, AutoModelForSequenceClassification

from bba.model.configuration import BBAConfig
from bba.model.gates import HeadGates, check_budget, heads_at
from bba.model.modeling import BBAEncoder, BBAForSequenceClassification

AutoConfig.register(BBAConfig.model_type, BBAConfig)
AutoModelForSequenceClassification.register(BBAConfig, BBAForSequenceClassification)

__all__ = ["BBAConfig", "BBAEncoder", "BBAForSequenceClassification", "HeadGates", "check_budget", "heads_at"]
