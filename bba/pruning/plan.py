"""What to keep: the plain value between scoring and cutting."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bba.errors import BudgetError
from bba.model import BBAConfig, BudgetGates, SequenceClassifier, check_budget, units_at

Kept = tuple[tuple[int, ...], ...]
"""Numbers of units in the dense model, ascending, one tuple a layer."""


@dataclass(frozen=True)
class Plan:
    """The heads and the feed-forward blocks that stay."""

    heads: Kept
    blocks: Kept
    """Empty in every layer for a model without FFN dial, whose feed-forward part always stays whole."""

    @property
    def num_heads(self) -> int:
        """How many heads stay."""
        return sum(len(kept) for kept in self.heads)

    @property
    def num_blocks(self) -> int:
        """How many blocks stay."""
        return sum(len(kept) for kept in self.blocks)


def positions(kept: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return (layer, number in the dense model) of every unit that is there, in the order of gates and scores.

    Args:
        kept: `config.heads` or `config.blocks`.
    """
    return [(layer, unit) for layer, units in enumerate(kept) for unit in units]


def select(kept: Sequence[Sequence[int]], chosen: Sequence[int] | Tensor) -> Kept:
    """Return, layer by layer, the units at the chosen places of `positions(kept)`."""
    present = positions(kept)
    stay = {present[int(place)] for place in chosen}
    return tuple(tuple(unit for unit in units if (layer, unit) in stay) for layer, units in enumerate(kept))


def everything(config: BBAConfig) -> Plan:
    """Return the plan that keeps all that is there."""
    return Plan(tuple(map(tuple, config.heads)), tuple(map(tuple, config.blocks)))


def without_attention(config: BBAConfig) -> Plan:
    """Return the plan that drops every head and keeps the rest: the ceiling of what a head budget can save."""
    return Plan(((),) * config.num_hidden_layers, everything(config).blocks)


def plan_at(model: SequenceClassifier, budget: float, ffn_budget: float = 1.0) -> Plan:
    """Return the plan of a model's own gates at a head budget and an FFN budget.

    An FFN budget of 1 keeps all blocks that are there, also those of a pruned model.

    Raises:
        BudgetError: a budget is not in (0, 1], the model was pruned to less than it pays for, or `ffn_budget` is below
            1 and the model has no FFN dial.
    """
    config = model.config
    heads = select(config.heads, _open(model.gates, budget, "heads"))
    if check_budget(ffn_budget) == 1:
        return Plan(heads, everything(config).blocks)
    if model.ffn_gates is None:
        raise BudgetError(
            f"The FFN budget {ffn_budget} is not usable: this model was trained for head budgets only, so give 1, or "
            "train one with --training.ffn true."
        )
    return Plan(heads, select(config.blocks, _open(model.ffn_gates, ffn_budget, "feed-forward blocks")))


def _open(gates: BudgetGates, budget: float, units: str) -> Tensor:
    """Return the places of the units that a budget pays for."""
    count = units_at(budget, gates.total)
    if count > len(gates.scores):
        raise BudgetError(
            f"The budget {budget} asks for {count} {units} but this model was pruned to {len(gates.scores)} of "
            f"{gates.total}: ask for less, or use the model it was pruned from."
        )
    return gates.order()[:count]
