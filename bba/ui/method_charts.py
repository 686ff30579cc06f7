"""Figures of a comparison of methods, from its results: no Streamlit in here."""

import textwrap
from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from bba.measure.choice import unbeaten
from bba.measure.results import METHODS, OURS, summarise
from bba.model import Setting
from bba.ui.charts import ACCENT, COLORS, GREY, SECOND, blank, literal, span


class Axis(NamedTuple):
    """What accuracy is drawn against; less of it is better."""

    column: str
    title: str
    tickformat: str
    beside: bool
    """Whether all methods of a setting have nearly the same value, so that they are drawn side by side."""


class Mark(NamedTuple):
    """How a method is drawn: told apart by symbol, open or filled, and only then by colour."""

    symbol: str
    color: str


AXES = {
    "latency": Axis("median_ms", "latency (milliseconds per call)", "", beside=False),
    "encoder cost": Axis("encoder_cost", "encoder cost (share of dense FLOPs)", "", beside=True),
    "parameters": Axis("parameters", "parameters (k: thousands, M: millions)", "~s", beside=True),
}
_ORANGE, _GREEN, _PINK, _OLIVE = COLORS[1:5]
MARKS = {
    "dense": Mark("square", GREY),
    "int8": Mark("hexagon", _OLIVE),
    "smaller": Mark("diamond", GREY),
    "static": Mark("star", _GREEN),
    "importance": Mark("triangle-up-open", _ORANGE),
    "importance+recovery": Mark("triangle-up", _ORANGE),
    "magnitude": Mark("triangle-down-open", _OLIVE),
    "magnitude+recovery": Mark("triangle-down", _OLIVE),
    "random": Mark("x-open", GREY),
    "random+recovery": Mark("x", GREY),
    "fixed-order": Mark("pentagon", _PINK),
    "budgetformer": Mark("star-diamond", _PINK),
    "routed": Mark("circle-x", ACCENT),
    OURS: Mark("circle", ACCENT),
}
"""Open: cut, with no training after it."""
SPARE = (Mark("hourglass", _GREEN), Mark("bowtie", _PINK), Mark("cross", _ORANGE), Mark("hexagram", _OLIVE))
"""For methods of a results file that this version does not know."""


def name_of(method: str) -> str:
    """Return a method's name as people see it."""
    return f"{method} (ours)" if method == OURS else method


def in_order(methods: Iterable[str]) -> list[str]:
    """Return methods in the order of `METHODS`, those it lacks before ours, which is last and so drawn on top."""
    known = list(METHODS)
    return sorted(methods, key=lambda method: (method == OURS, known.index(method) if method in known else len(known)))


def marks(methods: Iterable[str]) -> dict[str, Mark]:
    """Return how each method is drawn."""
    spare = cycle(SPARE)
    return {method: MARKS.get(method) or next(spare) for method in methods}


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of a comparison, a row for each method and setting, with what is drawn of them.

    To the columns of `summarise` it adds `setting`, and `low` and `high`, the ends of the bar of the accuracy: the
    sample standard deviation around the mean, or with one seed the 95 % Wilson interval.

    Args:
        frame: rows of one comparison, see `ResultRow`.
    """
    summary, keys = summarise(frame), ["method", "budget", "ffn_budget"]
    wilson = frame.groupby(keys, sort=False)[["accuracy_low", "accuracy_high"]].mean().reset_index()
    summary = summary.merge(wilson, on=keys)
    settings = zip(summary["budget"], summary["ffn_budget"], strict=True)
    summary = summary.assign(
        setting=[str(Setting(*setting)) for setting in settings],
        low=(summary["accuracy"] - summary["accuracy_sd"]).fillna(summary["accuracy_low"]),
        high=(summary["accuracy"] + summary["accuracy_sd"]).fillna(summary["accuracy_high"]),
    ).drop(columns=["accuracy_low", "accuracy_high"])
    order = {method: place for place, method in enumerate(in_order(summary["method"].unique()))}
    return summary.sort_values(
        ["method", "budget", "ffn_budget"], key=lambda each: each.map(order) if each.name == "method" else each
    )


def only_unbeaten(means: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return the rows that no other one beats: none costs as little and is as accurate, and better in one of them."""
    means = means.dropna(subset=AXES[axis].column)
    return means[unbeaten(list(means[AXES[axis].column]), list(means["accuracy"]))]


def accuracy_chart(means: pd.DataFrame, axis: str, now: Setting) -> go.Figure:
    """Draw accuracy against a cost, a symbol for each method, ours with a line.

    Args:
        means: see `points`.
        axis: a name in `AXES`.
        now: the setting that the dials are at; our point there gets a ring, if it is among the points.
    """
    x = AXES[axis]
    means = means.dropna(subset=x.column)  # A method that chooses for each text has no latency of drawn token ids.
    figure = blank(560)
    figure.update_layout(
        showlegend=True,
        margin_autoexpand=True,  # The legend needs two lines on a desk and seven on a phone.
        margin_l=54,
        legend={"y": -0.2, "font_size": 11, "entrywidth": 94, "entrywidthmode": "pixels"},  # Two columns on a phone.
    )
    placed = means.assign(x=_beside(means, x.column) if x.beside else means[x.column])
    looks = marks(placed["method"].unique())
    for method, part in placed.groupby("method", sort=False):
        _add(figure, str(method), part.sort_values("x"), looks[str(method)], with_times=axis == "latency")
    ours = placed[(placed["method"] == OURS) & (placed["setting"] == str(now))]
    ring = {"symbol": "circle-open", "size": 20, "color": SECOND, "line": {"width": 3}}
    if not ours.empty:
        figure.add_scatter(
            x=ours["x"], y=ours["accuracy"], mode="markers", name="chosen now", marker=ring, hoverinfo="skip"
        )
    figure.update_xaxes(title=x.title, tickformat=x.tickformat, nticks=7)
    figure.update_yaxes(title="accuracy (axis not from 0)", range=span(pd.concat([means["low"], means["high"]])))
    return figure


def _beside(means: pd.DataFrame, column: str) -> "pd.Series[float]":
    """Return a column with the methods moved apart around each setting, in the room to the next one."""
    centres = means.groupby("setting")[column].median().drop_duplicates().sort_values()
    room = 0.7 * (centres.diff().min() if len(centres) > 1 else centres.iloc[0])
    methods = list(means["method"].unique())
    places = means["method"].map(methods.index) - (len(methods) - 1) / 2
    return means[column] + places * room / len(methods)


def _add(figure: go.Figure, method: str, part: pd.DataFrame, mark: Mark, with_times: bool) -> None:
    ours = method == OURS
    bar = {"thickness": 1, "width": 3, "color": f"{mark.color}90"}
    figure.add_scatter(
        x=part["x"], y=part["accuracy"], name=literal(name_of(method)), legendrank=1 if ours else 1000,
        mode="lines+markers" if ours else "markers", line={"color": mark.color, "width": 2},
        marker={"symbol": mark.symbol, "color": mark.color, "size": 11 if ours else 10,
                "line": {"width": 2, "color": mark.color} if mark.symbol.endswith("-open") else {"width": 0}},
        error_x={"array": part["iqr_ms"] / 2, **bar} if with_times else None,
        error_y={"array": part["high"] - part["accuracy"], "arrayminus": part["accuracy"] - part["low"], **bar},
        hovertext=[_hover(method, row) for row in part.to_dict("records")],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _hover(method: str, row: dict[str, object]) -> str:
    """Return a point in plain words, in lines that fit on a phone."""
    words = textwrap.wrap(METHODS.get(method, ""), 40)
    seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
    between = "95 % interval" if row["seeds"] == 1 else "standard deviation"
    lines = [
        f"<b>{literal(name_of(method))}, budget {row['setting']}</b>",
        *words,
        f"accuracy {row['accuracy']:.3f}, {seeds}",
        f"{between}: {row['low']:.3f} to {row['high']:.3f}",
        f"{row['median_ms']:.2f} ms per call, {row['speedup']:.2f} times as fast as dense"
        if pd.notna(row["speedup"])
        else f"{row['wall_ms_1']:.2f} ms for a real text",
        f"encoder cost {row['encoder_cost']:.3f}, {row['parameters']:,.0f} parameters",
    ]
    return "<br>".join(lines)
