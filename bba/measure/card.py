"""The model card: a checkpoint's report in words and one table."""

from bba.measure.report import Report


def _table(report: Report) -> str:
    latency = {(row.heads, row.blocks): row for row in report.latency.rows}
    lines = ["| budget | heads | encoder FLOPs | accuracy (95 % interval) | macro-F1 | latency | speed-up |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in reversed(report.test):
        timed = latency.get((row.heads, row.blocks))
        speed = f"{timed.median_ms:.2f} ms | {timed.speedup:.2f}x" if timed else "not measured | not measured"
        lines.append(
            f"| {row.setting} | {row.heads} | {row.encoder_cost:.3f} | {row.accuracy:.2%} "
            f"({row.accuracy_low:.2%} to {row.accuracy_high:.2%}) | {row.macro_f1:.4f} | {speed} |"
        )
    return "\n".join(lines)


def model_card(name: str, report: Report) -> str:
    """Return the card of a checkpoint as Markdown."""
    counts, latency = report.counts, report.latency
    origin = (
        f"Pruned from `{report.parent['name']}` at budget {report.parent['budget']:g}.\n\n" if report.parent else ""
    )
    stages = ", ".join(
        f"{report.recipe['training'][stage]['epochs']:g} epochs {stage}" for stage in ("dense", "soft", "hard")
    )
    none = report.no_attention
    without = f"Without any attention the model reaches {none.accuracy:.2%}. " if none else ""
    return f"""---
library_name: bba
pipeline_tag: text-classification
---

# {name}

A budgeted text classifier: one checkpoint whose attention cost is a dial. {origin}Labels: {", ".join(report.labels)}.

```python
import bba

classifier = bba.BudgetedClassifier.from_pretrained("{name}")
classifier.predict(["your text"], budget=0.5)
```

## Data

Task `{report.task}`, {report.source}: {counts["train"]:,} training, {counts["validation"]:,} validation and
{counts["test"]:,} test texts. Everything was chosen on validation; the test texts were used once, for the table below.
Licence: {report.licence}

## Recipe

{stages}; seed {report.seed}; {report.training_seconds / 60:.1f} minutes of training on {report.machine["cpu"]} with
at most {report.machine["threads"]} threads. All settings are in `report.json`.

## Accuracy, cost and latency per budget

{_table(report)}

{without}Accuracy is on {counts["test"]:,} test
texts, one seed, with 95 % Wilson intervals. Latency is the median over {latency.rounds} rounds of really pruned models,
timed in turn with the dense one: {latency.cpu}, {latency.threads} thread, batch {latency.batch}, {latency.length}
tokens, torch {latency.torch}.

## Limits

One seed: a difference smaller than the intervals is noise. Texts unlike the training texts, in other languages, or
longer than the model reads are classified all the same, and often wrongly. Latencies hold for the machine named;
measure yours with `python -m bba bench`.
"""
