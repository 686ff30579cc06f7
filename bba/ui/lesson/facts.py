"""What the lesson tells of the model: computed on fresh texts, once for each checkpoint, for all visitors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st
import torch

from bba.data import synthetic
from bba.measure.latency import LatencySettings, alone, cpu_name, interquartile_range, time_in_turn, usual_length
from bba.measure.metrics import wilson
from bba.measure.report import Latency, LatencyRow
from bba.model import SequenceClassifier
from bba.model.inference import logits_of
from bba.model.packed import PackedClassifier
from bba.pruning.cost import predicted_speedup
from bba.pruning.masking import mask_heads
from bba.pruning.plan import Plan, everything, plan_at, positions, select, without_attention
from bba.pruning.surgery import prune
from bba.ui.state import Choice
from bba.ui.wording import count

TEXTS = 1_000
"""Fresh texts that everything is counted on."""
ROUNDS = 25
BATCH = 16
"""Texts at a time when masks and pruning are timed."""
FRESH_TEXTS = f"{count(TEXTS)} fresh texts"


@dataclass(frozen=True)
class Facts:
    """The model's answers to fresh texts of the teaching task."""

    choice: Choice

    @property
    def model(self) -> SequenceClassifier:
        """The model as it was trained, with all its heads."""
        return self.choice.classifier.checkpoint.model

    @property
    def labels(self) -> np.ndarray:
        """The true labels, shape (texts,)."""
        return np.array(_fresh(self.choice, self.choice.folder, self.choice.stamp)[1])

    def plan(self, budget: float) -> Plan:
        """Return what stays at a budget; at budget 0 no head does."""
        return plan_at(self.model, budget) if budget else without_attention(self.model.config)

    def wrong_plan(self, count: int) -> Plan:
        """Return the plan that closes the `count` heads that the model's own gates keep longest."""
        heads = select(self.model.config.heads, self.model.gates.order()[count:])
        return Plan(heads, everything(self.model.config).blocks)

    def probabilities(self, plan: Plan) -> np.ndarray:
        """Return how sure the really pruned model is of each label, shape (texts, labels)."""
        return _probabilities(self.choice, self.choice.folder, self.choice.stamp, plan)

    def answers(self, plan: Plan) -> np.ndarray:
        """Return the label that the pruned model gives each text, shape (texts,)."""
        answers: np.ndarray = self.probabilities(plan).argmax(axis=1)
        return answers

    def right(self, plan: Plan) -> np.ndarray:
        """Return which texts the pruned model gets right, shape (texts,)."""
        return self.answers(plan) == self.labels

    def accuracy(self, plan: Plan) -> float:
        """Return the share of the texts that the pruned model gets right."""
        return float(self.right(plan).mean())

    def enough(self) -> np.ndarray:
        """Return the smallest budget from which on each text is always right, shape (texts,); NaN where there is none.

        Only budgets that were measured are looked at.
        """
        stops = np.array(self.choice.stops)
        right = np.stack([self.right(self.plan(stop)) for stop in stops])  # (budgets, texts), from small to large
        stays = np.logical_and.accumulate(right[::-1])[::-1]
        return np.where(stays.any(axis=0), stops[stays.argmax(axis=0)], np.nan)

    def accuracy_frame(self) -> pd.DataFrame:
        """Return accuracy and its 95 % Wilson interval at every budget, as `charts.accuracy_line` draws it."""
        rows = []
        for budget in (0.0, *self.choice.stops):
            right = self.right(self.plan(budget))
            rows.append((budget, 1.0, right.mean(), *wilson(int(right.sum()), len(right))))
        return pd.DataFrame(rows, columns=["budget", "ffn_budget", "accuracy", "low", "high"])

    def last_head(self) -> tuple[int, int]:
        """Return layer and number, from 0, of the head that closes last."""
        return positions(self.model.config.heads)[int(self.model.gates.order()[0])]


@st.cache_resource(max_entries=2, show_spinner=False)
def _fresh(_choice: Choice, folder: Path, stamp: int) -> tuple[list[list[int]], list[int]]:
    split = synthetic.synthetic_split(TEXTS, "lesson")
    return [encoded.ids for encoded in _choice.classifier.encode(split.texts)], split.labels


@st.cache_data(max_entries=64, show_spinner="The model reads fresh texts…")
def _probabilities(_choice: Choice, folder: Path, stamp: int, plan: Plan) -> np.ndarray:
    pruned = prune(_choice.classifier.checkpoint.model, plan, share=True).eval()
    return logits_of(pruned, _fresh(_choice, folder, stamp)[0]).softmax(dim=-1).numpy()


@dataclass(frozen=True)
class Timing:
    """Masked and pruned, timed in turn with all heads on."""

    latency: Latency
    """Rows: all heads, masked, pruned."""
    difference: float
    """Largest difference between the logits of masked and pruned."""


def timing(choice: Choice, budget: float) -> Timing:
    """Time masked and pruned heads here and now; remembered for all visitors, until `forget_timing`.

    Raises:
        MeasureError: the wait for another measurement was in vain.
    """
    return _timing(choice, choice.folder, choice.stamp, budget)


def forget_timing() -> None:
    """Let the next one who asks measure again."""
    _timing.clear()


@st.cache_resource(max_entries=8, show_spinner="Timing, in turn…")
def _timing(_choice: Choice, folder: Path, stamp: int, budget: float) -> Timing:
    model = _choice.classifier.checkpoint.model
    plan = plan_at(model, budget)
    models = [model, mask_heads(model, plan), _choice.classifier.at(budget)]
    settings = LatencySettings(batch=BATCH, length=usual_length(model.config), rounds=ROUNDS)
    with alone(lambda: None):
        times = time_in_turn(list(map(PackedClassifier, models)), model.config.vocab_size, settings, lambda done: None)
    rows = _fresh(_choice, folder, stamp)[0][:BATCH]
    difference = (logits_of(models[1], rows) - logits_of(models[2], rows)).abs().max()
    latency = Latency(
        cpu=cpu_name(), threads=settings.threads, batch=settings.batch, length=settings.length, rounds=settings.rounds,
        torch=torch.__version__, date="", rows=[_row(each, models[0], times, place, settings.length)
                                                 for place, each in enumerate(models)],
    )  # fmt: skip
    return Timing(latency, float(difference))


def _row(
    model: SequenceClassifier, whole: SequenceClassifier, times: np.ndarray, place: int, length: int
) -> LatencyRow:
    return LatencyRow(
        budget=model.config.num_kept_heads / model.config.num_dense_heads,
        ffn_budget=1.0,
        heads=model.config.num_kept_heads,
        blocks=model.config.num_kept_blocks,
        median_ms=float(np.median(times[:, place])),
        iqr_ms=interquartile_range(times[:, place]),
        speedup=float(np.median(times[:, 0] / times[:, place])),
        predicted_speedup=predicted_speedup(model.config, whole.config, length),
    )
