"""Quality: accuracy with its interval, macro-F1 and recall per class, at one budget or many."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score, recall_score

from bba.backends import TORCH
from bba.measure.answers import Answers, answers_of
from bba.measure.report import BudgetRow, Quality
from bba.model import BBAConfig, SequenceClassifier, Setting
from bba.model.inference import logits_of
from bba.pruning.cost import block_share, encoder_share, head_share
from bba.pruning.plan import without_attention
from bba.pruning.surgery import prune

GRID = tuple(Setting(round(step / 20, 2)) for step in range(1, 21))
"""What is measured of a model without FFN dial: head budgets 0.05 to 1 in steps of 0.05."""
PAIRS = tuple(Setting(b, f) for f in (0.1, 0.25, 0.5, 0.75, 1.0) for b in (0.1, 0.25, 0.5, 0.75, 1.0))
"""What is measured of a model with both dials. The app's sliders stop nowhere else."""


def grid(config: BBAConfig) -> list[Setting]:
    """Return the settings to measure of a model, as far as it serves them; at least one."""
    most = Setting(head_share(config), block_share(config))
    settings = PAIRS if config.ffn_block else GRID
    served = [setting for setting in settings if setting.budget <= most.budget and _served(setting, most)]
    return served or [most]


def _served(setting: Setting, most: Setting) -> bool:
    return setting.ffn_budget == 1 or setting.ffn_budget <= most.ffn_budget


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    interval = binomtest(correct, total).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def score(model: SequenceClassifier, rows: Sequence[Sequence[int]], labels: Sequence[int]) -> BudgetRow:
    """Classify token lists with a model as it is and score the answers; the budget is what the model has left.

    Args:
        model: in evaluation mode.
        rows: token ids of each text.
        labels: true class of each text.
    """
    return score_answers(model.config, logits_of(model, rows).argmax(dim=-1).numpy(), labels)


def score_answers(config: BBAConfig, predicted: np.ndarray, labels: Sequence[int] | np.ndarray) -> BudgetRow:
    """Score the classes that a model of this configuration gave, shape (texts,); see `score`."""
    return BudgetRow(
        budget=head_share(config),
        ffn_budget=block_share(config),
        heads=config.num_kept_heads,
        blocks=config.num_kept_blocks,
        cost=head_share(config),
        encoder_cost=encoder_share(config),
        **asdict(quality_of(predicted, labels, len(config.labels))),
    )


def quality_of(predicted: np.ndarray, labels: Sequence[int] | np.ndarray, classes: int) -> Quality:
    """Score the classes that a model gave, shape (texts,), out of so many."""
    truth, places = np.asarray(labels), list(range(classes))
    low, high = wilson(int((predicted == truth).sum()), len(truth))
    return Quality(
        accuracy=float(accuracy_score(truth, predicted)),
        accuracy_low=low,
        accuracy_high=high,
        macro_f1=float(f1_score(truth, predicted, average="macro", labels=places, zero_division=0.0)),
        recall=[
            float(value) for value in recall_score(truth, predicted, average=None, labels=places, zero_division=0.0)
        ],
    )


def score_budgets(
    model: SequenceClassifier,
    rows: Sequence[Sequence[int]],
    labels: Sequence[int],
    settings: Sequence[Setting],
    progress: Callable[[float], None] = lambda done: None,
    backend: str = TORCH,
) -> list[BudgetRow]:
    """Prune the model to each setting and score what it answers on a backend; see `score`.

    `progress` hears the share that is done, in [0, 1].
    """
    return score_all(answers_of(model, rows, labels, settings, progress, backend))


def score_all(answers: Answers) -> list[BudgetRow]:
    """Score the answers at every setting; see `score`."""
    return [
        replace(
            score_answers(config, logits.argmax(axis=1), answers.labels),
            budget=setting.budget,
            ffn_budget=setting.ffn_budget,
        )
        for setting, config, logits in zip(answers.settings, answers.configs, answers.logits, strict=True)
    ]


def score_without_attention(
    model: SequenceClassifier, rows: Sequence[Sequence[int]], labels: Sequence[int]
) -> BudgetRow:
    """Remove every head and score what is left; see `score`."""
    return score(prune(model, without_attention(model.config), share=True).eval(), rows, labels)
