"""The model card of a BudgetFormer: its report in words and tables."""

from collections.abc import Sequence

from bba.measure.budgetformer_report import BudgetFormerReport, Group, TimingRow


def _groups(title: str, groups: Sequence[Group]) -> str:
    lines = [f"| {title} | texts | mean heads |", "|---|---|---|"]
    return "\n".join(lines + [f"| {group.name} | {group.texts:,} | {group.heads:.2f} |" for group in groups])


def _timings(timings: Sequence[TimingRow]) -> str:
    lines = ["| batch | model | wall time a batch | speed-up | by FLOPs | peak memory |", "|---" * 6 + "|"]
    return "\n".join(
        lines
        + [
            f"| {row.batch} | {row.model} | {row.median_ms:.2f} ms | {row.speedup:.2f}x | "
            f"{row.predicted_speedup:.2f}x | {row.peak_bytes / 1e6:.2f} MB |"
            for row in timings
        ]
    )


def budgetformer_card(name: str, report: BudgetFormerReport) -> str:
    """Return the card of a BudgetFormer as Markdown."""
    counts, test, machine, training = report.counts, report.test, report.machine, report.recipe["training"]
    return f"""---
library_name: bba
pipeline_tag: text-classification
---

# {name}

A BudgetFormer (*Adaptive Head Budgeting for Efficient Multi-Head Attention*, arXiv 2604.22583): for every text, each
layer predicts how many attention heads it needs and which. Labels: {", ".join(report.labels)}.

```python
from bba.budgetformer import BudgetFormerClassifier

classifier = BudgetFormerClassifier.from_pretrained("{name}")
classifier.predict(["your text"])[0].layers  # each layer's budget, relevance of its heads, and chosen heads
```

## Data

Task `{report.task}`, {report.source}: {counts["train"]:,} training, {counts["validation"]:,} validation and
{counts["test"]:,} test texts. Everything was chosen on validation; the test texts were used once, for what follows.
Licence: {report.licence}

## Recipe

{training["dense"]["epochs"]:g} epochs dense, {training["soft"]["epochs"]:g} epochs of exploration,
{training["hard"]["epochs"]:g} of exploitation, aimed at {report.target:g} of the {report.total_heads} heads; seed
{report.seed}; {report.training_seconds / 60:.1f} minutes of training on {machine["cpu"]} with at most
{machine["threads"]} threads. All settings are in `report.json`.

## Accuracy and cost

Accuracy {test.accuracy:.2%} ({test.accuracy_low:.2%} to {test.accuracy_high:.2%}, 95 % Wilson interval), macro-F1
{test.macro_f1:.4f}, on the test texts; the dense warm start, which saw fewer examples, has
{report.dense_accuracy["test"]:.2%}. A text uses {test.heads:.2f} of {report.total_heads} heads on average
({test.cost:.3f}; on validation {report.validation.cost:.3f}); with its policies the encoder spends
{test.encoder_cost:.3f} of the dense encoder's FLOPs.

{_groups("true label", test.by_label)}

{_groups("length", test.by_length)}

## Wall time and memory

{_timings(report.timings)}

Median over {machine["rounds"]} rounds, all in turn, one thread, torch {machine["torch"]}, on {machine["texts"]}
validation texts; policies and grouping are in the time. *fixed* is the dense model cut to the mean number of heads that
these texts get, for its speed alone. Memory is that of the activations.

## Limits

One seed: a difference smaller than the intervals is noise. Texts unlike the training texts, in other languages, or
longer than the model reads are classified all the same, and often wrongly. Times hold for the machine named.
"""
