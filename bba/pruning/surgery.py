"""Cutting: a new, smaller model from a plan. The model it is cut from stays as it is."""

import copy

import torch
from torch import Tensor

from bba.errors import BudgetError
from bba.model import BBAConfig, BBAForSequenceClassification
from bba.pruning.plan import Plan, head_positions, plan_at


def pruned_config(config: BBAConfig, plan: Plan) -> BBAConfig:
    """Return the configuration of the model that a plan leaves.

    Raises:
        BudgetError: the plan keeps a head that is not there, or has another number of layers.
    """
    missing = [
        (layer, head)
        for layer, kept in enumerate(plan.heads)
        for head in kept
        if layer >= len(config.heads) or head not in config.heads[layer]
    ]
    if missing or len(plan.heads) != config.num_hidden_layers:
        raise BudgetError(
            f"The plan keeps {missing or 'heads'} in {len(plan.heads)} layers, which this model of "
            f"{config.num_hidden_layers} layers does not have: keep heads from config.kept_heads only."
        )
    smaller = copy.deepcopy(config)
    smaller.kept_heads = [list(kept) for kept in plan.heads]
    return smaller


def _columns(config: BBAConfig, layer: int, kept: tuple[int, ...]) -> Tensor:
    """Return which of a layer's n * D head columns belong to the heads that stay."""
    places = torch.tensor([config.heads[layer].index(head) for head in kept], dtype=torch.long)
    return (places[:, None] * config.head_size + torch.arange(config.head_size)).flatten()


def prune(model: BBAForSequenceClassification, plan: Plan) -> BBAForSequenceClassification:
    """Return a new model without the heads that the plan drops: rows and columns are gone, not masked.

    It computes what `model` computes with gates of 1 on the kept heads and 0 on the others.
    """
    config = model.config
    with torch.device("meta"):  # No memory and no random numbers for weights that are replaced at once.
        smaller = BBAForSequenceClassification(pruned_config(config, plan))
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for layer, kept in enumerate(plan.heads):
        columns = _columns(config, layer, kept)
        rows = torch.cat([columns + part * len(config.heads[layer]) * config.head_size for part in range(3)])
        attention = f"encoder.layers.{layer}.attention"
        weights[f"{attention}.qkv.weight"] = weights[f"{attention}.qkv.weight"][rows]
        weights[f"{attention}.qkv.bias"] = weights[f"{attention}.qkv.bias"][rows]
        weights[f"{attention}.output.weight"] = weights[f"{attention}.output.weight"][:, columns]
    stays = [head in plan.heads[layer] for layer, head in head_positions(config)]
    weights["gates.scores"] = weights["gates.scores"][torch.tensor(stays)]
    smaller.load_state_dict({name: tensor.contiguous() for name, tensor in weights.items()}, assign=True)
    return smaller.train(model.training)


def prune_to(model: BBAForSequenceClassification, budget: float) -> BBAForSequenceClassification:
    """Return the model that a head budget leaves; see `plan_at` for the errors."""
    return prune(model, plan_at(model, budget))
