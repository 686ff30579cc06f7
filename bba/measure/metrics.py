"""Quality: accuracy with its interval, macro-F1 and recall per class, at one budget or many."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score, recall_score

from bba.measure.report import BudgetRow
from bba.model import BBAForSequenceClassification
from bba.model.inference import logits_of
from bba.pruning.cost import head_share
from bba.pruning.plan import keep_positions, plan_at
from bba.pruning.surgery import prune

GRID = tuple(round(step / 20, 2) for step in range(1, 21))
"""The head budgets that are measured: 0.05 to 1 in steps of 0.05. The app's slider stops nowhere else."""


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    interval = binomtest(correct, total).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def score(model: BBAForSequenceClassification, rows: Sequence[Sequence[int]], labels: Sequence[int]) -> BudgetRow:
    """Classify token lists with a model as it is and score the answers; the budget is what the model has left.

    Args:
        model: in evaluation mode.
        rows: token ids of each text.
        labels: true class of each text.
    """
    predicted = logits_of(model, rows).argmax(dim=-1).numpy()
    truth = np.asarray(labels)
    classes = list(range(len(model.config.labels)))
    low, high = wilson(int((predicted == truth).sum()), len(truth))
    return BudgetRow(
        budget=head_share(model.config),
        ffn_budget=1.0,
        heads=model.config.num_kept_heads,
        cost=head_share(model.config),
        accuracy=float(accuracy_score(truth, predicted)),
        accuracy_low=low,
        accuracy_high=high,
        macro_f1=float(f1_score(truth, predicted, average="macro", labels=classes, zero_division=0.0)),
        recall=[
            float(value) for value in recall_score(truth, predicted, average=None, labels=classes, zero_division=0.0)
        ],
    )


def score_budgets(
    model: BBAForSequenceClassification,
    rows: Sequence[Sequence[int]],
    labels: Sequence[int],
    budgets: Sequence[float] = GRID,
    progress: Callable[[float], None] = lambda done: None,
) -> list[BudgetRow]:
    """Prune the model to each budget and score it; see `score`. `progress` hears the share that is done, in [0, 1]."""
    scored: dict[int, BudgetRow] = {}  # Budgets that keep the same heads are the same model.
    result = []
    for number, budget in enumerate(budgets, start=1):
        plan = plan_at(model, budget)
        if plan.num_heads not in scored:
            scored[plan.num_heads] = score(prune(model, plan).eval(), rows, labels)
        result.append(replace(scored[plan.num_heads], budget=budget))
        progress(number / len(budgets))
    return result


def score_without_attention(
    model: BBAForSequenceClassification, rows: Sequence[Sequence[int]], labels: Sequence[int]
) -> BudgetRow:
    """Remove every head and score what is left; see `score`."""
    return score(prune(model, keep_positions(model.config, [])).eval(), rows, labels)
