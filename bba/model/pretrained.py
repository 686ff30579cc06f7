"""The model as a `PreTrainedModel`: with fresh weights, and as transformers' Trainer and Auto classes take it."""

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from bba.model.configuration import BBAConfig
from bba.model.gates import BudgetGates
from bba.model.modeling import Encoder, SequenceClassifier


class BBAPreTrainedModel(PreTrainedModel):
    """What transformers needs to know to initialise, save and load these models."""

    config: BBAConfig
    config_class = BBAConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _no_split_modules = ["Layer"]  # noqa: RUF012 - the base class has a list

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])
        if isinstance(module, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, BudgetGates):
            nn.init.zeros_(module.scores)


class BBAEncoder(Encoder, BBAPreTrainedModel):
    """An `Encoder` that transformers can initialise, train, save and load."""

    config: BBAConfig

    def __init__(self, config: BBAConfig) -> None:
        BBAPreTrainedModel.__init__(self, config)
        self._build(config)
        self.post_init()


class BBAForSequenceClassification(SequenceClassifier, BBAPreTrainedModel):
    """A `SequenceClassifier` that transformers can initialise, train, save and load."""

    config: BBAConfig
    encoder_class = BBAEncoder

    def __init__(self, config: BBAConfig) -> None:
        BBAPreTrainedModel.__init__(self, config)
        self._build(config)
        self.post_init()


AutoModelForSequenceClassification.register(BBAConfig, BBAForSequenceClassification)
