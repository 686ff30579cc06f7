"""docs/RESULTS.md: all comparisons as tables and sentences, written from their result files alone."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bba.errors import DataError
from bba.measure.results import METHODS, OURS, PER_TEXT, best_specialists, read_results, summarise, training_cost
from bba.model import Setting

_HEAD = """# Results

One budgeted checkpoint against everything it would replace. This page is written by `python -m bba compare --page`
from the result files beside it, one row a model; the *Methods* page of the app draws the same files.

**What is the same for all.** Per seed: split, first weights, training texts, and the dense warm start that every method
but *smaller* goes on from and learns from. Static gates, the smaller model and the dense model see as many training
examples as the budgeted checkpoint; recovery comes on top of the dense model's. Everything is cut by the same code, so
that closed heads and neurons are really gone. Heads are ranked on validation texts; the test texts chose nothing.

**How to read the tables.** Accuracy is on test texts, mean ± sample standard deviation over the seeds. *Against ours*
is the difference to the budgeted checkpoint of the same seed and setting in points, with the 95 % interval of its mean
(Student's t over the seeds), and the smallest and largest p of McNemar's exact test, one a seed. Encoder cost is the
share of the dense encoder's FLOPs at 64 tokens. Latency is the median of really pruned models, timed in turn with the
dense one.

| method | what it is |
|---|---|
"""

_PER_TEXT = """*budgetformer* and *routed* spend on each text what it needs; on average they aim at the budget in front,
which the budgeted checkpoint spends on every text. Times are the median wall time of a batch of validation texts of
their own lengths, with all choosing, grouping and second tries in it, timed in turn; memory is the most that the
activations take in batches of 32. The tables above have no latency for them: it depends on what a text says."""

_PAPERS = """## The papers' figures

*Budgeted Attention Allocation* (arXiv 2605.05697), beside which the tables above stand; data splits, vocabulary and
weights are not the same, so only the differences between methods compare.

| setting | dense | budgeted | others |
|---|---|---|---|
| synthetic sequence task of its own | | 99.7 % at cost 0.303, 100.0 % at 0.504 | |
| AG News, word level, b = 0.5 | | 82.1 % at 1.28x | |
| AG News, BERT-Mini, b = 0.5 | | 87.6 % at 1.20x | zero-shot 86.1 %, one recovery epoch 87.9 % |
| DBpedia14, BERT-Mini, b = 0.5 | 96.6 % | 97.4 % | |
"""


def results_page(paths: Sequence[Path]) -> str:
    """Return the page about result files as Markdown.

    Raises:
        DataError: there is none, or one is not a results file.
    """
    if not paths:
        raise DataError("There are no results to write about: run `python -m bba compare` first.")
    methods = "".join(f"| {name} | {words} |\n" for name, words in METHODS.items())
    return "\n".join([_HEAD + methods, *(_section(path) for path in paths), _PAPERS])


def _section(path: Path) -> str:
    frame = read_results(path)
    summary = summarise(frame)
    parts = [f"## {path.stem}", _circumstances(frame, path.name)]
    for (budget, ffn_budget), rows in summary.groupby(["budget", "ffn_budget"], sort=False):
        parts += [f"### Budget {Setting(budget, ffn_budget)}", _table(rows)]
    parts += _per_text(summary)
    parts += ["### Against the best specialist", _against_specialists(summary), _losses(summary)]
    return "\n\n".join([*parts, "### What it costs to train", _cost(frame)]) + "\n"


def _circumstances(frame: pd.DataFrame, name: str) -> str:
    first = frame.iloc[0]
    seeds = ", ".join(map(str, sorted(frame["seed"].unique())))
    budgeted = frame[frame["method"] == OURS]["examples_seen"].iloc[0]
    return (
        f"Task `{first['task']}`, backbone `{first['backbone']}`; {first['training_texts']:,} training texts, "
        f"{first['test_texts']:,} test texts; seeds {seeds}; {budgeted:,} examples seen by the budgeted checkpoint. "
        f"Latency: {', '.join(sorted(frame['cpu'].unique()))}, {first['threads']} thread, batch {first['batch']}, "
        f"{first['length']} tokens, {first['rounds']} rounds. All rows: [`{name}`](results/{name})."
    )


def _table(rows: pd.DataFrame) -> str:
    lines = [
        "| method | accuracy | against ours | McNemar p | encoder cost | latency | speed-up |",
        "|---|" + "---|" * 6,
    ]
    for row in rows.sort_values("accuracy", ascending=False).to_dict("records"):
        ours = row["method"] == OURS
        name = f"**{row['method']}**" if ours else row["method"]
        compared = "|" if ours else f"{_points(row)} | {_p(row)}"
        lines.append(
            f"| {name} | {_percent(row['accuracy'], row['accuracy_sd'])} | {compared} | {row['encoder_cost']:.3f} | "
            f"{_figure(row['median_ms'], '.2f', ' ms')} | {_figure(row['speedup'], '.2f', 'x')} |"
        )
    return "\n".join(lines)


def _figure(value: float, form: str, unit: str) -> str:
    """Return a figure with its unit; a dash where there is none."""
    return f"{value:{form}}{unit}" if pd.notna(value) else "-"


def _per_text(summary: pd.DataFrame) -> list[str]:
    """Return the section on methods that spend on each text what it needs, beside ours and dense; none without them."""
    if not summary["method"].isin(PER_TEXT).any():
        return []
    lines = _header("budget", "method", "accuracy", "encoder cost", "one by one", "batches of 32", "memory")
    shown = summary[summary["method"].isin((*PER_TEXT, OURS, "dense"))]
    for row in shown.sort_values(["budget", "ffn_budget", "accuracy"], ascending=False).to_dict("records"):
        lines.append(
            f"| {Setting(row['budget'], row['ffn_budget'])} | {row['method']} | "
            f"{_percent(row['accuracy'], row['accuracy_sd'])} | {row['encoder_cost']:.3f} | "
            f"{row['wall_ms_1']:.2f} ms | {row['wall_ms_32']:.2f} ms | {row['peak_bytes'] / 1e6:.2f} MB |"
        )
    return ["### A budget for each text", _PER_TEXT, "\n".join(lines)]


def _header(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]


def _percent(mean: float, spread: float) -> str:
    return f"{100 * mean:.2f} %" + (f" ± {100 * spread:.2f}" if pd.notna(spread) else "")


def _points(row: dict[str, float]) -> str:
    """Return a difference to ours in points, with its interval where there are several seeds."""
    middle, half = 100 * row["difference"], 100 * row["difference_half"]
    return f"{middle:+.2f}" + (f" ({middle - half:+.2f} to {middle + half:+.2f})" if pd.notna(half) else "")


def _p(row: dict[str, float]) -> str:
    low, high = (f"{row[name]:.3f}" if row[name] >= 0.001 else "< 0.001" for name in ("smallest_p", "largest_p"))
    return low if low == high else f"{low} to {high}"


def _against_specialists(summary: pd.DataFrame) -> str:
    ours = summary[summary["method"] == OURS].set_index(["budget", "ffn_budget"])
    lines = [
        "| budget | ours | best specialist, by validation | its accuracy | it against ours |",
        "|---|" + "---|" * 4,
    ]
    for row in best_specialists(summary).to_dict("records"):
        own = ours.loc[(row["budget"], row["ffn_budget"])]
        lines.append(
            f"| {Setting(row['budget'], row['ffn_budget'])} | {_percent(own['accuracy'], own['accuracy_sd'])} | "
            f"{row['method']} | {_percent(row['accuracy'], row['accuracy_sd'])} | {_points(row)} |"
        )
    return "\n".join(lines)


def _losses(summary: pd.DataFrame) -> str:
    """Say plainly where others are ahead of ours."""
    others = summary[(summary["method"] != OURS) & (summary["difference"] > 0)]
    if others.empty:
        return "No method is ahead of the budgeted checkpoint at any budget, not even within the noise."
    told = [
        f"{row['method']} at {Setting(row['budget'], row['ffn_budget'])} by {100 * row['difference']:.2f}"
        f"{'' if row['difference'] > row['difference_half'] else ' (within the noise)'}"
        for row in others.sort_values("difference", ascending=False).to_dict("records")
    ]
    return f"**Where ours loses**, in points: {'; '.join(told)}."


def _cost(frame: pd.DataFrame) -> str:
    lines = _header("method", "models to train", "minutes for all settings")
    for row in training_cost(frame).to_dict("records"):
        lines.append(f"| {row['method']} | {row['models']:.0f} | {row['minutes']:.1f} |")
    return "\n".join(lines)
