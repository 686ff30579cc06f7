"""Pieces of the Methods page: which comparison, what of it, the picture, what it says, and its tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from bba.measure.results import METHODS, OURS, SPECIALISTS, best_specialists, summarise, training_cost
from bba.model import Setting
from bba.ui import layout, method_charts, state
from bba.ui.wording import count, plain


@dataclass(frozen=True)
class View:
    """What the visitor looks at."""

    of_methods: pd.DataFrame
    """Rows of the chosen seeds and methods, at all budgets."""
    at_budgets: pd.DataFrame
    """Rows of the chosen seeds and budgets, from all methods."""
    means: pd.DataFrame
    """What is drawn, see `method_charts.points`: all three choices, and only unbeaten ones if so asked."""
    axis: str
    """A name in `method_charts.AXES`."""


def usable() -> dict[str, pd.DataFrame]:
    """Return the rows of all comparisons by name; tell which cannot be used, and stop if there is none."""
    root = state.results_root()
    found = {path.stem: state.results(path) for path in state.results_files(root)}
    for problem in found.values():
        if isinstance(problem, str):
            st.warning(plain(problem), icon=":material/warning:")
    comparisons = {name: rows for name, rows in found.items() if isinstance(rows, pd.DataFrame)}
    if not comparisons:
        _no_results(root)
    return comparisons


def _no_results(root: Path) -> None:
    shown = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
    st.info(
        f"No comparison yet: there are no results in {plain(str(shown))}. Make some; it trains every method, which "
        "takes a while:",
        icon=":material/science:",
    )
    st.code(f"python -m bba compare --task synthetic --out {shown / 'synthetic.csv'}", language="bash")
    st.markdown("Then reload this page. To look elsewhere, set `BBA_RESULTS` to a folder of results.")
    st.stop()


def ask(comparisons: dict[str, pd.DataFrame]) -> View:
    """Ask for a comparison and what to show of it, and return it; stop if nothing is left."""
    with st.container(horizontal=True):
        name = st.selectbox(
            "Comparison", list(comparisons), key="results", bind="query-params", width=340,
            help="A file of results: all methods on one task, trained from the same seeds.",
        )  # fmt: skip
        axis = st.segmented_control(
            "Accuracy against", list(method_charts.AXES), default="latency", required=True, key="axis",
            bind="query-params", help="What a method costs, on the horizontal axis. Less is better.",
        )  # fmt: skip
    rows = comparisons[name]
    asked = [Setting(*each) for each in zip(rows["budget"], rows["ffn_budget"], strict=True)]
    rows = rows.assign(setting=[str(setting) for setting in asked])
    with st.container(horizontal=True):
        methods = _some("Methods", method_charts.in_order(rows["method"].unique()), "methods", 340)
        budgets = _some("Budgets", [str(setting) for setting in sorted(set(asked))], "budgets", 160)
        seeds = _some("Seeds", sorted(rows["seed"].unique().tolist()), "seeds", 160)
    unbeaten = st.toggle(
        "Only unbeaten", key="unbeaten", bind="query-params",
        help="Hides every point that another one beats: that costs no more and is as accurate, and is better in one "
        "of the two.",
    )  # fmt: skip
    rows = rows[rows["seed"].isin(seeds)]
    of_methods, at_budgets = rows[rows["method"].isin(methods)], rows[rows["setting"].isin(budgets)]
    drawn = of_methods[of_methods["setting"].isin(budgets)]
    if drawn.empty:
        st.info("None of these methods was measured at these budgets with these seeds: choose more of them.")
        st.stop()
    means = method_charts.points(drawn)
    means = method_charts.only_unbeaten(means, axis) if unbeaten else means
    return View(of_methods, at_budgets, means, axis)


def _some(label: str, options: list[Any], key: str, width: int) -> list[Any]:
    """Return the options that the visitor chose; all of them where none was."""
    chosen = st.multiselect(
        label, options, key=key, bind="query-params", placeholder=f"all {len(options)}", width=width
    )
    return chosen or options


def verdict(view: View) -> None:
    """Say how often ours is ahead of the best specialist."""
    st.markdown(against_specialists(summarise(view.at_budgets)))


def against_specialists(summary: pd.DataFrame) -> str:
    """Return in a sentence how often ours is ahead of the best specialist of a setting, chosen on validation.

    Args:
        summary: see `summarise`.
    """
    best = best_specialists(summary)
    if best.empty:
        return "No specialist was trained for the budgets shown, so there is none to hold ours against."
    known = best["difference_half"].notna().all()
    half = best["difference_half"] if known else 0.0
    behind, ahead = int((best["difference"] > half).sum()), int((best["difference"] < -half).sum())
    between = f"{'within the noise' if known else 'level'} at {len(best) - ahead - behind}"
    told = (
        "Noise: the 95 % interval of the mean difference over the seeds spans zero."
        if known
        else "One seed gives no interval, so these differences may be noise."
    )
    return (
        f"Against the best specialist of each budget, chosen on validation texts from {', '.join(_trained(summary))}, "
        f"ours is **ahead at {ahead}, {between} and behind at {behind}** of {len(best)} "
        f"{'budget' if len(best) == 1 else 'budgets'}. {told}"
    )


def _trained(summary: pd.DataFrame) -> list[str]:
    return [method for method in SPECIALISTS if method in set(summary["method"])]


def chart(view: View, now: Setting) -> None:
    """Show accuracy against what a method costs."""
    alt = f"Accuracy against {view.axis}, a symbol for each method, with bars for the spread"
    layout.chart(method_charts.accuracy_chart(view.means, view.axis, now), view.means, "methods_chart", alt)
    several = (view.means["seeds"] > 1).any()
    bars = "standard deviation over the seeds" if several else "95 % Wilson interval of the one seed"
    told = [f"Bars: {bars}{' and interquartile range of the time' if view.axis == 'latency' else ''}."]
    if method_charts.AXES[view.axis].beside:
        told.append("The methods of a budget cost nearly the same and are drawn side by side.")
    absent = view.means[view.means[method_charts.AXES[view.axis].column].isna()]["method"].unique()
    if len(absent):
        told.append(f"Not drawn: {' and '.join(absent)}, whose time depends on the text; see wall time in the table.")
    st.caption(" ".join([*told, "Open symbols: cut, with no training after it."]))


def circumstances(view: View) -> None:
    """Say exactly what was compared."""
    first, seeds = view.at_budgets.iloc[0], sorted(view.at_budgets["seed"].unique())
    number = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    threads = "1 thread" if first["threads"] == 1 else f"{first['threads']} threads"
    cpus = plain(", ".join(sorted(view.at_budgets["cpu"].unique())))
    st.caption(
        f"Compared on the task {plain(str(first['task']))} with the backbone {plain(str(first['backbone']))}: "
        f"{count(first['training_texts'])} training texts, {count(first['test_texts'])} test texts, {number} "
        f"({', '.join(map(str, seeds))}); latency on {cpus}, {threads}, "
        f"batch {first['batch']}, {first['length']} tokens, median of {first['rounds']} rounds."
    )


def table(view: View) -> None:
    """Show what is drawn as a table that can be sorted and taken away."""
    st.subheader("Figures", help="Means over the seeds. A click on a column's name sorts by it.")
    frame = table_frame(view.means.sort_values(["budget", "ffn_budget", "accuracy"], ascending=False))
    with st.container(key="methods_table", gap=None, horizontal_alignment="right"):
        st.dataframe(frame, hide_index=True, column_config=_columns())
        st.download_button(
            "CSV", lambda: frame.to_csv(index=False), file_name="methods.csv", mime="text/csv", key="methods_csv",
            type="tertiary", icon=":material/download:", on_click="ignore", help="Download this table.",
        )  # fmt: skip


def table_frame(means: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the page, accuracies in percent and differences in points; ours is compared with nothing.

    Args:
        means: see `method_charts.points`.
    """
    others = means["method"] != OURS
    difference, half = 100 * means["difference"].where(others), 100 * means["difference_half"]
    return pd.DataFrame(
        {
            "method": [method_charts.name_of(method) for method in means["method"]],
            "budget": means["setting"],
            "accuracy": 100 * means["accuracy"],
            "accuracy_sd": 100 * means["accuracy_sd"],
            "difference": difference,
            "difference_low": difference - half,
            "difference_high": difference + half,
            "smallest_p": means["smallest_p"].where(others),
            "largest_p": means["largest_p"].where(others),
            "encoder_cost": means["encoder_cost"],
            "median_ms": means["median_ms"],
            "speedup": means["speedup"],
            "wall_ms_1": means["wall_ms_1"],
            "wall_ms_32": means["wall_ms_32"],
            "parameters": means["parameters"].round().astype(int),
            "examples_seen": means["examples_seen"].round().astype(int),
            "minutes": means["training_seconds"] / 60,
            "words": [METHODS.get(method, "") for method in means["method"]],
        }
    )


def _columns() -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    p_help = "McNemar's exact test against ours on the same test texts, one p a seed."
    between = "95 % interval of the mean difference, Student's t over the seeds. One seed has none."
    return {
        "method": text("method", pinned=True),
        "budget": text("budget", help="Head budget asked, and FFN budget after a colon where it was cut too."),
        "accuracy": number("accuracy, %", format="%.2f"),
        "accuracy_sd": number("± sd, points", format="%.2f", help="Sample standard deviation over the seeds."),
        "difference": number("against ours, points", format="%+.2f", help="Above 0: more accurate than ours."),
        "difference_low": number("95 % from", format="%+.2f", help=between),
        "difference_high": number("95 % to", format="%+.2f", help=between),
        "smallest_p": number("smallest p", format="%.2g", help=p_help),
        "largest_p": number("largest p", format="%.2g", help=p_help),
        "encoder_cost": number("encoder cost", format="%.3f", help="Share of the dense encoder's FLOPs at 64 tokens."),
        "median_ms": number("latency, ms", format="%.2f"),
        "speedup": number("speed-up, times", format="%.2f"),
        "wall_ms_1": number("a real text, ms", format="%.2f", help="Wall time of one text of its own length."),
        "wall_ms_32": number("32 real texts, ms", format="%.2f", help="Wall time of a batch of 32 such texts."),
        "parameters": number("parameters", format="localized"),
        "examples_seen": number("examples seen", format="localized", help="Training examples, repeats counted."),
        "minutes": number("training, minutes", format="%.1f", help="All that this model needed, its warm start too."),
        "words": text("what it is", width="large"),
    }


def training(view: View) -> None:
    """Show what it takes to serve all settings of the comparison with each method."""
    st.subheader("What it costs to train")
    st.caption(
        "To serve all budgets that a method was compared at, mean over the seeds. What serves several budgets, such as "
        "the warm start, counts once."
    )
    with st.container(key="training_table"):
        st.dataframe(
            training_frame(view.of_methods), hide_index=True, width="content", height="content",
            column_config={
                "budgets": st.column_config.NumberColumn("budgets"),
                "models": st.column_config.NumberColumn("models", format="%.0f"),
                "minutes": st.column_config.NumberColumn("minutes", format="%.1f"),
            },
        )  # fmt: skip


def training_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each method how many settings it serves, and with how many models and minutes; the cheapest first.

    Args:
        rows: of one comparison, see `ResultRow`.
    """
    served = rows.drop_duplicates(["method", "budget", "ffn_budget"])["method"].value_counts()
    costs = training_cost(rows).sort_values("minutes", kind="stable")
    costs.insert(1, "budgets", costs["method"].map(served))
    return costs.assign(method=[method_charts.name_of(method) for method in costs["method"]])
