"""Monotone gates: one learned score per unit, and a budget that opens the units in the order of their scores.

A unit is an attention head, or a block of feed-forward neurons. Soft gates follow
`g(b) = sigmoid((score + beta(b)) / tau)` with one offset `beta` for all units, chosen so that the mean gate equals the
budget `b`. `beta` grows with `b`; therefore no gate ever closes as the budget grows.
"""

import math

import torch
from torch import Tensor, nn

from bba.model.setting import check_budget


def units_at(budget: float, total: int) -> int:
    """Return k = max(1, floor(budget · total)): how many of `total` units a budget pays for.

    One unit is the floor. The tiny term guards against products such as 0.3 · 10 = 2.999….
    """
    return max(1, math.floor(check_budget(budget) * total + 1e-9))


def _solve_offset(scores: Tensor, budget: float, temperature: float) -> Tensor:
    """Find beta with mean(sigmoid((scores + beta) / temperature)) = budget by bisection, in double precision."""
    logit = math.log(budget) - math.log1p(-budget)
    # At the ends every gate is at most (at least) the budget, so the root lies between them.
    low, high = -scores.max() + temperature * logit, -scores.min() + temperature * logit
    for _ in range(80):
        middle = (low + high) / 2
        below = torch.sigmoid((scores + middle) / temperature).mean() < budget
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


class BudgetGates(nn.Module):
    """The learned order of a model's heads, or of its feed-forward blocks, and the gates it gives at a budget.

    Args:
        present: number of units that are there, n.
        total: number of units of the dense model, N.
    """

    def __init__(self, present: int, total: int) -> None:
        super().__init__()
        self.total = total
        self.scores = nn.Parameter(torch.zeros(present))

    def soft(self, budget: float, temperature: float = 1.0) -> Tensor:
        """Return gates in [0, 1] whose mean is `budget`, shape (n,); at budget 1 all ones.

        The gradient passes through the offset: with w = g(1 - g), d(beta)/d(score_i) = -w_i / sum(w), which is what one
        Newton step taken at the solution yields. Where every gate is saturated, w is 0 and so is the gradient.
        """
        if check_budget(budget) == 1.0:
            return torch.ones_like(self.scores)
        scores = self.scores.double()
        offset = _solve_offset(scores.detach(), budget, temperature)
        gates = torch.sigmoid((scores + offset) / temperature)
        slope = (gates * (1 - gates)).mean().detach() / temperature
        mean = gates.mean()
        offset = offset - (mean - mean.detach()) / slope.clamp_min(torch.finfo(slope.dtype).tiny)
        return torch.sigmoid((scores + offset) / temperature).to(self.scores.dtype)

    def hard(self, budget: float) -> Tensor:
        """Return gates that are exactly 0 or 1, with exactly `units_at(budget, N)` ones, shape (n,)."""
        gates = torch.zeros_like(self.scores)
        gates[self.order()[: units_at(budget, self.total)]] = 1.0
        return gates

    def straight_through(self, budget: float, temperature: float = 1.0) -> Tensor:
        """Return the hard gates' values with the soft gates' gradient, shape (n,)."""
        soft = self.soft(budget, temperature)
        return self.hard(budget) + soft - soft.detach()

    def order(self) -> Tensor:
        """Return the units' positions from the first to open to the last, shape (n,); ties go to the lower position."""
        return torch.argsort(self.scores.detach(), descending=True, stable=True)

    def opening_budgets(self) -> Tensor:
        """Return for each unit the smallest budget at which it is open, shape (n,): rank / N, the first rank being 1.

        The first unit is always open: it is the floor of one. In double precision, as 0.7 in single precision is a
        little less than 7 / 10 and would not pay for the seventh of ten.
        """
        budgets = torch.empty(len(self.scores), dtype=torch.float64, device=self.scores.device)
        ranks = torch.arange(1, len(self.scores) + 1, dtype=budgets.dtype, device=budgets.device)
        budgets[self.order()] = ranks / self.total
        return budgets
