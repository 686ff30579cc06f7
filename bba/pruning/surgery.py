"""Cutting: a new, smaller model from a plan. The model it is cut from stays as it is."""

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from bba.errors import BudgetError
from bba.model import BBAConfig, SequenceClassifier
from bba.model.blank import blank
from bba.pruning.plan import Plan, plan_at, positions

_Model = TypeVar("_Model", bound=SequenceClassifier)


def pruned_config(config: BBAConfig, plan: Plan) -> BBAConfig:
    """Return the configuration of the model that a plan leaves.

    Raises:
        BudgetError: the plan keeps a head or a block that is not there, or has another number of layers.
    """
    _check_kept("heads", plan.heads, config.heads)
    _check_kept("blocks", plan.blocks, config.blocks)
    smaller = copy.deepcopy(config)
    smaller.kept_heads = [list(kept) for kept in plan.heads]
    smaller.kept_blocks = [list(kept) for kept in plan.blocks]
    return smaller


def _check_kept(units: str, kept: Sequence[Sequence[int]], present: Sequence[Sequence[int]]) -> None:
    missing = sorted(set(positions(kept)) - set(positions(present)))
    if missing or len(kept) != len(present):
        raise BudgetError(
            f"The plan keeps {missing or units} in {len(kept)} layers, which this model of {len(present)} layers does "
            f"not have: keep {units} from config.kept_{units} only."
        )


def _columns(present: Sequence[int], kept: Sequence[int], size: int) -> Tensor:
    """Return which of a layer's columns, `size` for each unit, belong to the units that stay."""
    places = torch.tensor([present.index(unit) for unit in kept], dtype=torch.long)
    return (places[:, None] * size + torch.arange(size)).flatten()


def prune(model: _Model, plan: Plan, share: bool = False) -> _Model:
    """Return a new model without the heads and blocks that the plan drops: rows and columns are gone, not masked.

    It computes what `model` computes with gates of 1 on what is kept and 0 on the rest.

    Args:
        model: stays as it is.
        plan: what to keep.
        share: leave what is not cut, such as the embeddings, in `model`'s memory; for models that are only read.
    """
    config = model.config
    smaller = blank(type(model), pruned_config(config, plan))
    weights = {name: tensor if share else tensor.clone() for name, tensor in model.state_dict().items()}
    for layer, (heads, blocks) in enumerate(zip(config.heads, config.blocks, strict=True)):
        prefix = f"encoder.layers.{layer}"
        if tuple(heads) != tuple(plan.heads[layer]):
            _cut_heads(weights, f"{prefix}.attention", heads, plan.heads[layer], config.head_size)
        if tuple(blocks) != tuple(plan.blocks[layer]):
            _cut_blocks(weights, f"{prefix}.ffn", blocks, plan.blocks[layer], config.ffn_block)
    _cut_scores(weights, "gates.scores", config.heads, plan.heads)
    if config.ffn_block:
        _cut_scores(weights, "ffn_gates.scores", config.blocks, plan.blocks)
    smaller.load_state_dict({name: tensor.contiguous() for name, tensor in weights.items()}, assign=True)
    return smaller.train(model.training)


def _cut_heads(
    weights: dict[str, Tensor], attention: str, present: Sequence[int], kept: Sequence[int], head_size: int
) -> None:
    columns = _columns(present, kept, head_size)
    rows = torch.cat([columns + part * len(present) * head_size for part in range(3)])  # Of query, key and value.
    for kind in ("weight", "bias"):
        weights[f"{attention}.qkv.{kind}"] = weights[f"{attention}.qkv.{kind}"][rows]
    weights[f"{attention}.output.weight"] = weights[f"{attention}.output.weight"][:, columns]


def _cut_blocks(weights: dict[str, Tensor], ffn: str, present: Sequence[int], kept: Sequence[int], block: int) -> None:
    neurons = _columns(present, kept, block)
    for kind in ("weight", "bias"):
        weights[f"{ffn}.input.{kind}"] = weights[f"{ffn}.input.{kind}"][neurons]
    weights[f"{ffn}.output.weight"] = weights[f"{ffn}.output.weight"][:, neurons]


def _cut_scores(
    weights: dict[str, Tensor], name: str, present: Sequence[Sequence[int]], kept: Sequence[Sequence[int]]
) -> None:
    stays = [unit in kept[layer] for layer, unit in positions(present)]
    weights[name] = weights[name][torch.tensor(stays, dtype=torch.bool)]


def prune_to(model: _Model, budget: float, ffn_budget: float = 1.0) -> _Model:
    """Return the model that a head budget and an FFN budget leave; see `plan_at` for the errors."""
    return prune(model, plan_at(model, budget, ffn_budget))
