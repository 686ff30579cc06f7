"""The report beside a BudgetFormer: how well it answers, what its texts get, and what that saves. Plain values."""

from dataclasses import dataclass
from typing import Any

from bba.measure.report import Origin, Quality, reading

FORMAT = 1


@dataclass(frozen=True)
class Group:
    """How many heads the texts of one class, or of one range of lengths, use."""

    name: str
    texts: int
    heads: float
    """Mean number of heads of a text; 0 where there is no text."""
    histogram: list[int]
    """Number of texts for each number of heads, from 0 to all."""


@dataclass(frozen=True)
class ChosenRow(Quality):
    """What a BudgetFormer does on one split."""

    budget: float
    """Mean predicted budget."""
    heads: float
    """Mean number of heads of a text."""
    cost: float
    """Mean share of the heads that a text uses."""
    encoder_cost: float
    """FLOPs of encoder and policies, over those of the dense encoder on the same texts."""
    heads_by_layer: list[float]
    """Mean number of heads of a text in each layer."""
    by_label: list[Group]
    """The texts of each true label."""
    by_length: list[Group]
    """The texts of each range of lengths, with about as many texts in each."""
    again: int
    """Texts whose choice was so close that they were run again alone; that work is in wall time, not in the FLOPs."""


@dataclass(frozen=True)
class TimingRow:
    """Wall time and memory of one model on the same texts, of their own lengths, on one thread."""

    model: str
    """`dense`; `fixed`, the dense one cut to the mean number of heads that the texts get; or `budgetformer`."""
    batch: int
    """Texts a batch."""
    median_ms: float
    """Median over the rounds, in milliseconds per batch; policies, grouping and second runs are in it."""
    iqr_ms: float
    speedup: float
    """Median over the rounds of the dense model's time over this model's in the same round."""
    predicted_speedup: float
    """Dense FLOPs over this model's FLOPs."""
    peak_bytes: int
    """Most memory that the activations took at a time."""


@dataclass(frozen=True, kw_only=True)
class BudgetFormerReport(Origin):
    """All that is known about a BudgetFormer besides its weights; `machine` also tells how times were taken."""

    target: float
    """Mean share of heads that training aimed at."""
    total_heads: int
    dense_accuracy: dict[str, float]
    """Accuracy per split of the dense warm start, which was the teacher and saw fewer examples."""
    validation: ChosenRow
    test: ChosenRow
    timings: list[TimingRow]
    format: int = FORMAT

    @classmethod
    def from_json(cls, values: Any) -> "BudgetFormerReport":
        """Build a report from plain values.

        Raises:
            CheckpointError: they are not such a report, or one of another format.
        """
        with reading(cls, values, FORMAT):
            rows = {split: _row(values[split]) for split in ("validation", "test")}
            return cls(**{**values, **rows, "timings": [TimingRow(**row) for row in values["timings"]]})


def _row(values: dict[str, Any]) -> ChosenRow:
    groups = {name: [Group(**group) for group in values[name]] for name in ("by_label", "by_length")}
    return ChosenRow(**{**values, **groups})
