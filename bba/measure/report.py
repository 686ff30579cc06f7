"""The report beside a checkpoint: all that a table or a chart shows, so that none of them loads weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from bba.errors import CheckpointError
from bba.measure.ladder import Routing
from bba.model import Setting

FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How well a model answers on one split."""

    accuracy: float
    accuracy_low: float
    """Lower end of the 95 % Wilson interval."""
    accuracy_high: float
    """Upper end of it."""
    macro_f1: float
    recall: list[float]
    """Recall of each class, in the order of the labels."""


@dataclass(frozen=True)
class BudgetRow(Quality):
    """What a model does at one budget, on one split."""

    budget: float
    """Asked head budget."""
    ffn_budget: float
    """Asked feed-forward budget; 1 where only attention is cut."""
    heads: int
    """Heads that are there."""
    blocks: int
    """Feed-forward blocks that are there; 0 for a model without FFN dial."""
    cost: float
    """Achieved head budget: share of the dense model's heads."""
    encoder_cost: float
    """Share of the dense encoder's FLOPs, attention and feed-forward part together, for a text of 64 tokens."""

    @property
    def setting(self) -> Setting:
        """The asked budgets."""
        return Setting(self.budget, self.ffn_budget)


@dataclass(frozen=True)
class LatencyRow:
    """How long one model takes; budget 0 stands for the ceiling: no attention at all."""

    budget: float
    ffn_budget: float
    heads: int
    blocks: int
    median_ms: float
    """Median over the rounds, in milliseconds per batch."""
    iqr_ms: float
    """Interquartile range over the rounds, in milliseconds."""
    speedup: float
    """Median over the rounds of dense time over this model's time in the same round."""
    predicted_speedup: float
    """Dense FLOPs over this model's FLOPs."""
    backend: str = "torch"
    """What it ran on: torch, onnx (float32) or onnx-int8, the latter two in onnxruntime."""

    @property
    def setting(self) -> Setting:
        """The asked budgets."""
        return Setting(self.budget, self.ffn_budget)


@dataclass(frozen=True)
class Latency:
    """A latency measurement, and on what it was taken."""

    cpu: str
    threads: int
    batch: int
    length: int
    """Tokens per text."""
    rounds: int
    torch: str
    """Version of torch."""
    date: str
    rows: list[LatencyRow]
    """Dense in torch first, which the speed-ups are over; then backend by backend."""
    onnxruntime: str | None = None
    """Version of onnxruntime; None where nothing ran in it."""

    def on(self, backend: str) -> "Latency":
        """Return the same measurement with the rows of one backend only."""
        return replace(self, rows=[row for row in self.rows if row.backend == backend])

    @property
    def ceiling(self) -> LatencyRow | None:
        """The model without attention; None for a checkpoint whose feed-forward part was cut."""
        return next((row for row in self.rows if row.heads == 0), None)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a checkpoint comes from: data, recipe and machine."""

    task: str
    labels: list[str]
    source: str
    licence: str
    counts: dict[str, int]
    """Number of texts per split: train, validation, test."""
    seed: int
    recipe: dict[str, Any]
    """The settings it was trained with."""
    training_seconds: float
    machine: dict[str, Any]
    """CPU name and largest number of threads it was trained on, among others."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


@contextmanager
def reading(kind: type[Origin], values: Any, expected: int) -> Iterator[None]:
    """Read a report from plain values inside; KeyError and TypeError mean that they are not complete.

    Raises:
        CheckpointError: they are not such a report, or one of another format than the expected one.
    """
    found = values.get("format") if isinstance(values, dict) else None
    if found != expected:
        raise CheckpointError(
            f"report.json has format {found!r} but this version reads format {expected}: "
            "train the checkpoint again, or use the version of bba that wrote it."
        )
    try:
        yield
    except (KeyError, TypeError) as error:
        known = ", ".join(entry.name for entry in fields(kind))
        raise CheckpointError(f"report.json is not complete ({error}): expected the fields {known}.") from error


@dataclass(frozen=True, kw_only=True)
class Report(Origin):
    """All that is known about a checkpoint besides its weights."""

    validation: list[BudgetRow]
    test: list[BudgetRow]
    no_attention: BudgetRow | None
    """The test split with every head closed, or None where the feed-forward part was cut: that was not measured."""
    latency: Latency
    parent: dict[str, Any] | None = None
    """For a pruned checkpoint: the name it was pruned from, and the budgets."""
    routing: Routing | None = None
    """Per-input budgets; None where none were chosen, as for a pruned checkpoint."""
    format: int = FORMAT

    @property
    def ffn_budgets(self) -> list[float]:
        """The FFN budgets that were measured, ascending."""
        return sorted({row.ffn_budget for row in self.test})

    def budgets(self, ffn_budget: float = 1.0) -> list[float]:
        """Return the head budgets that were measured at an FFN budget, ascending."""
        return sorted(row.budget for row in self.test if row.ffn_budget == ffn_budget)

    def row(self, budget: float, ffn_budget: float = 1.0) -> BudgetRow:
        """Return the test row of a measured setting.

        Raises:
            KeyError: nothing was measured there.
        """
        return {row.setting: row for row in self.test}[Setting(budget, ffn_budget)]

    @classmethod
    def from_json(cls, values: Any) -> "Report":
        """Build a report from plain values.

        Raises:
            CheckpointError: they are not a report, or one of another format.
        """
        with reading(cls, values, FORMAT):
            latency = {**values["latency"], "rows": [LatencyRow(**row) for row in values["latency"]["rows"]]}
            rows = {split: [BudgetRow(**row) for row in values[split]] for split in ("validation", "test")}
            none = values["no_attention"] and BudgetRow(**values["no_attention"])
            routing = values.get("routing") and Routing.from_json(values["routing"])
            return cls(**{**values, **rows, "no_attention": none, "latency": Latency(**latency), "routing": routing})
