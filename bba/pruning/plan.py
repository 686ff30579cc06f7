"""What to keep: the plain value between scoring heads and cutting them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bba.errors import BudgetError
from bba.model import BBAConfig, BBAForSequenceClassification, heads_at


@dataclass(frozen=True)
class Plan:
    """The heads that stay, by their numbers in the dense model, ascending, one tuple a layer."""

    heads: tuple[tuple[int, ...], ...]

    @property
    def num_heads(self) -> int:
        """How many heads stay."""
        return sum(len(kept) for kept in self.heads)


def head_positions(config: BBAConfig) -> list[tuple[int, int]]:
    """Return (layer, dense head number) of every head that is there, in the order of gates and scores."""
    return [(layer, head) for layer, kept in enumerate(config.heads) for head in kept]


def keep_positions(config: BBAConfig, positions: Sequence[int] | Tensor) -> Plan:
    """Return the plan that keeps the heads at these positions of `head_positions`."""
    present = head_positions(config)
    kept = {present[int(position)] for position in positions}
    return Plan(
        tuple(tuple(head for head in heads if (layer, head) in kept) for layer, heads in enumerate(config.heads))
    )


def plan_at(model: BBAForSequenceClassification, budget: float) -> Plan:
    """Return the plan of a model's own gates at a head budget.

    Raises:
        BudgetError: the budget is not in (0, 1], or the model was pruned to fewer heads than it pays for.
    """
    config = model.config
    count = heads_at(budget, config.num_dense_heads)
    if count > config.num_kept_heads:
        raise BudgetError(
            f"The budget {budget} asks for {count} heads but this model was pruned to {config.num_kept_heads} of "
            f"{config.num_dense_heads}: ask for less, or use the model it was pruned from."
        )
    return keep_positions(config, model.gates.order()[:count])
