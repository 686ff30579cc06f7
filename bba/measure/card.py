"""The model card: a checkpoint's report in words and one table."""

from typing import Any

from bba.measure.report import Report
from bba.model import Setting


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


def _asked(parent: dict[str, Any]) -> Setting:
    """Return the budgets that a pruned checkpoint was made with; older reports name the head budget alone."""
    return Setting(parent["budget"], parent.get("ffn_budget", 1.0))


def _routing(report: Report) -> str:
    """Return the section on per-input budgets; nothing where none were chosen."""
    if report.routing is None:
        return ""
    lines = [
        "| budgets, climbed while unsure | mean cost | accuracy (95 % interval) | texts on each |",
        "|---|---|---|---|",
    ]
    for ladder in report.routing.ladders:
        test, shares = ladder.test, ", ".join(f"{share:.0%}" for share in ladder.test.shares)
        names = " > ".join(f"{rung.setting}" for rung in ladder.rungs)
        lines.append(
            f"| {names} | {test.cost:.3f} | {test.accuracy:.2%} ({test.accuracy_low:.2%} to {test.accuracy_high:.2%}) "
            f"| {shares} |"
        )
    before, after = report.routing.test_errors
    rungs = "\n".join(lines)
    return f"""
## A budget for each text

With `budget="auto"` a text starts at the first budget and climbs while the calibrated probability of its label is below
a threshold. Temperatures and thresholds were fitted on validation; the table shows the test texts. Cost is all FLOPs
spent, earlier tries included, over those of the dense encoder.

{rungs}

Expected calibration error on the test texts, mean of {len(report.routing.fixed)} budgets: {before:.4f} before the
temperature, {after:.4f} after.
"""


def model_card(name: str, report: Report) -> str:
    """Return the card of a checkpoint as Markdown."""
    counts, latency = report.counts, report.latency
    origin = f"Pruned from `{report.parent['name']}` at budget {_asked(report.parent)}.\n\n" if report.parent else ""
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
{_routing(report)}
## Limits

One seed: a difference smaller than the intervals is noise. Texts unlike the training texts, in other languages, or
longer than the model reads are classified all the same, and often wrongly. Latencies hold for the machine named;
measure yours with `python -m bba bench`.
"""
