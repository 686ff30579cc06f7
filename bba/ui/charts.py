"""Figures from plain values: no Streamlit in here. Colours are readable on light and dark ground and without colour."""

import html
import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from bba.measure.report import BudgetRow, Latency, Report

ACCENT = "#2a7bc4"
BAND = "rgba(42, 123, 196, 0.25)"
GREY = "#7d838c"
EARLY, LATE = "#123f73", "#2f78bd"
"""Open heads, from budget 0 to budget 1; white letters are readable on both."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
COLORS = (ACCENT, "#d9720f", "#11966b", "#c2619e", "#a58500", GREY)
MAX_LABELS = 6
"""Labels drawn as lines; more cannot be told apart."""


def literal(text: str) -> str:
    """Return text that plotly shows as it stands, without reading tags in it."""
    return html.escape(text, quote=False)


def shorten(text: str, letters: int = 18) -> str:
    """Return text cut to a length that fits beside an axis."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _figure(height: int, **layout: object) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 62, "r": 12, "t": 10, "b": 56, "autoexpand": False},  # Fitted margins would cost a second layout.
        showlegend=False,
        hoverlabel={"namelength": -1},
        legend={"orientation": "h", "y": -0.25, "x": 0},
        **layout,
    )
    figure.update_xaxes(automargin=False, fixedrange=True)
    figure.update_yaxes(automargin=False, fixedrange=True)
    return figure


def opening_frame(opening: Sequence[Sequence[float | None]], cost: float) -> pd.DataFrame:
    """Return a row per head of the dense model: layer, head (from 1), opens_at, state (open, closed, removed)."""
    rows = []
    for layer, heads in enumerate(opening, start=1):
        for head, budget in enumerate(heads, start=1):
            state = "removed" if budget is None else "open" if budget <= cost + 1e-6 else "closed"
            rows.append((layer, head, budget, state))
    return pd.DataFrame(rows, columns=["layer", "head", "opens_at", "state"])


def _ceil(budget: float) -> str:
    """Return a budget rounded up to two decimals: at the rounded value the head is open."""
    return f"{math.ceil(budget * 100 - 1e-3) / 100:.2f}"


def head_map(frame: pd.DataFrame, title: str) -> go.Figure:
    """Draw layers by heads: open heads filled, closed ones outlined, removed ones left out.

    Args:
        frame: see `opening_frame`.
        title: a short line that names the budget.
    """
    layers, heads = int(frame["layer"].max()), int(frame["head"].max())
    figure = _figure(
        52 * layers + 100,
        title={"text": title, "x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 8}},
        shapes=[_cell(*row) for row in frame[["layer", "head", "opens_at", "state"]].itertuples(index=False)],
    )
    figure.update_layout(margin={"t": 40, "l": 46})
    size = 14 if heads <= 8 else 11
    for state, color in (("open", "#ffffff"), ("closed", None), ("removed", GREY)):
        part = frame[frame["state"] == state]
        texts = ["x" if state == "removed" else _ceil(budget) for budget in part["opens_at"]]
        figure.add_scatter(
            x=part["head"], y=part["layer"], text=texts, mode="text", textfont={"color": color, "size": size},
            hovertemplate=f"layer %{{y}}, head %{{x}}<br>{state}, opens at %{{text}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="head", dtick=1, range=[0.5, heads + 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(title="layer", dtick=1, range=[layers + 0.5, 0.5], showgrid=False, zeroline=False)
    return figure


def _cell(layer: int, head: int, opens_at: float | None, state: str) -> dict[str, object]:
    place = {"x0": head - 0.46, "x1": head + 0.46, "y0": layer - 0.44, "y1": layer + 0.44}
    if state == "open" and opens_at is not None:
        return {"type": "rect", "layer": "below", "fillcolor": _blend(opens_at), "line": {"width": 0}, **place}
    line = {"width": 1 if state == "closed" else 0, "color": GREY, "dash": "dot"}
    return {"type": "rect", "layer": "below", "fillcolor": "rgba(0, 0, 0, 0)", "line": line, **place}


def _blend(share: float) -> str:
    """Return the colour between EARLY (0) and LATE (1)."""
    ends = zip(*([int(color[place : place + 2], 16) for place in (1, 3, 5)] for color in (EARLY, LATE)), strict=True)
    return "rgb({}, {}, {})".format(*(round(low + (high - low) * share) for low, high in ends))


def probability_bars(probabilities: dict[str, float]) -> go.Figure:
    """Draw a bar per label, the most probable in the accent colour; the scale is always 0 to 1."""
    best = max(probabilities, key=probabilities.__getitem__)
    figure = _figure(36 * len(probabilities) + 70, bargap=0.25)
    figure.add_bar(
        x=list(probabilities.values()),
        y=list(range(len(probabilities))),
        orientation="h",
        marker_color=[ACCENT if label == best else GREY for label in probabilities],
        text=[f"{value:.2f}" for value in probabilities.values()],
        textposition=["inside" if value > 0.5 else "outside" for value in probabilities.values()],
        textangle=0,
        customdata=[literal(label) for label in probabilities],
        hovertemplate="%{customdata}: %{x:.3f}<extra></extra>",
    )
    figure.update_xaxes(title="probability (0 to 1)", range=[0, 1], dtick=0.25)
    names = [literal(shorten(label)) for label in probabilities]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, autorange="reversed")
    figure.update_layout(margin_l=20 + 7 * max(len(shorten(label)) for label in probabilities))
    return figure


def accuracy_frame(rows: Sequence[BudgetRow]) -> pd.DataFrame:
    """Return accuracy against budget: budget, cost, heads, accuracy, low, high (95 % Wilson interval), macro_f1."""
    values = [
        (row.budget, row.cost, row.heads, row.accuracy, row.accuracy_low, row.accuracy_high, row.macro_f1)
        for row in rows
    ]
    return pd.DataFrame(values, columns=["budget", "cost", "heads", "accuracy", "low", "high", "macro_f1"])


def accuracy_line(frame: pd.DataFrame, budget: float) -> go.Figure:
    """Draw accuracy against budget with its interval, between no attention (budget 0) and all there is.

    Args:
        frame: see `accuracy_frame`; the row of budget 0 is the model without attention.
        budget: the budget to mark.
    """
    figure = _figure(300)
    rows = frame.sort_values("budget")
    served, none = rows[rows["budget"] > 0], rows[rows["budget"] == 0]
    line = {"x": served["budget"], "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_scatter(**line, y=served["low"])
    figure.add_scatter(**line, y=served["high"], fill="tonexty", fillcolor=BAND)
    hover = "budget %{x:.2f}: accuracy %{y:.3f}<extra></extra>"
    figure.add_scatter(
        x=served["budget"], y=served["accuracy"], mode="lines+markers", line={"color": ACCENT}, hovertemplate=hover
    )
    now = served[served["budget"] == budget]
    figure.add_scatter(
        x=now["budget"], y=now["accuracy"], mode="markers", hovertemplate=hover,
        marker={"size": 15, "color": ACCENT, "line": {"width": 3, "color": "#ffffff"}},
    )  # fmt: skip
    figure.add_vline(budget, line={"color": ACCENT, "width": 1, "dash": "dot"})
    _level(figure, float(served["accuracy"].iloc[-1]), "all heads", "bottom right", "dash")
    for level in none["accuracy"]:
        _level(figure, level, "no attention at all", "top right", "dot")
    figure.update_xaxes(title="head budget asked (share of attention cost)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="accuracy (0 to 1)", range=[0, 1.04], dtick=0.25)
    return figure


def _level(figure: go.Figure, value: float, name: str, place: str, dash: str) -> None:
    """Draw a horizontal line with its name and value."""
    figure.add_hline(
        value,
        line={"color": GREY, "width": 1, "dash": dash},
        annotation={"text": f"{name}: {value:.3f}"},
        annotation_position=place,
    )


def flip_chart(frame: pd.DataFrame, budget: float) -> go.Figure:
    """Draw the labels' probabilities against the budget; a dashed line stands where the label flips.

    Args:
        frame: columns budget, label, probability.
        budget: the budget to mark.
    """
    figure = _figure(340)
    figure.update_layout(showlegend=True, margin_b=96)
    tops = frame.groupby("label", sort=False)["probability"].max().nlargest(MAX_LABELS).index
    for place, label in enumerate(label for label in frame["label"].unique() if label in tops):
        part = frame[frame["label"] == label]
        figure.add_scatter(
            x=part["budget"], y=part["probability"], name=literal(shorten(label)), mode="lines+markers",
            line={"dash": DASHES[place], "color": COLORS[place]}, marker={"symbol": SYMBOLS[place], "size": 7},
            hovertemplate=f"{literal(label).replace('%', '&#37;')}: %{{y:.3f}} at budget %{{x:.2f}}<extra></extra>",
        )  # fmt: skip
    for before, after in flips(frame):
        figure.add_vline((before + after) / 2, line={"color": GREY, "width": 2, "dash": "dash"})
    figure.add_vline(budget, line={"color": ACCENT, "width": 2, "dash": "dot"})
    figure.update_xaxes(title="head budget asked (share of attention cost)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="probability (0 to 1)", range=[0, 1.04], dtick=0.25)
    return figure


def label_by_budget(frame: pd.DataFrame) -> "pd.Series[str]":
    """Return the most probable label at each budget, ascending."""
    best = frame.loc[frame.groupby("budget")["probability"].idxmax()]
    return best.set_index("budget")["label"].sort_index()


def flips(frame: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the pairs of neighbouring budgets between which the label changes."""
    labels = label_by_budget(frame)
    pairs = zip(labels.items(), list(labels.items())[1:], strict=False)
    return [(float(before), float(after)) for (before, one), (after, other) in pairs if one != other]


def latency_frame(latency: Latency, report: Report) -> pd.DataFrame:
    """Return a measurement with the accuracy of each row: the dense row first, the ceiling (budget 0) last."""
    known = {row.heads: row for row in [report.no_attention, *report.test]}
    rows = []
    for row in latency.rows:
        quality = known.get(row.heads)
        accuracy = (quality.accuracy, quality.accuracy_low, quality.accuracy_high) if quality else (None, None, None)
        dense = row is latency.rows[0]
        name = "dense" if dense else "no attention" if row.heads == 0 else f"{row.budget:g}"
        rows.append(
            (name, row.budget, row.heads, row.median_ms, row.iqr_ms, row.speedup, row.predicted_speedup, *accuracy)
        )
    columns = [
        "name",
        "budget",
        "heads",
        "median_ms",
        "iqr_ms",
        "speedup",
        "predicted_speedup",
        "accuracy",
        "low",
        "high",
    ]
    return pd.DataFrame(rows, columns=columns)


def accuracy_latency(frame: pd.DataFrame, budget: float) -> go.Figure:
    """Draw accuracy against measured latency: bars are the interquartile range and the 95 % Wilson interval.

    Args:
        frame: see `latency_frame`.
        budget: the budget to mark, if it was measured.
    """
    figure = _figure(380)
    frame = frame.dropna(subset=["accuracy"]).sort_values("heads")
    marked = (frame["budget"] == budget) & (frame["name"] != "dense")
    figure.add_scatter(
        x=frame["median_ms"], y=frame["accuracy"], mode="lines+markers+text",
        line={"color": GREY, "width": 1, "dash": "dot"},
        text=_few_names(frame, marked), textposition=_beside(frame), customdata=frame["name"],
        error_x={"array": frame["iqr_ms"] / 2, "thickness": 1, "color": GREY},
        error_y={
            "array": frame["high"] - frame["accuracy"], "arrayminus": frame["accuracy"] - frame["low"],
            "thickness": 1, "color": GREY,
        },
        marker={
            "color": ACCENT, "size": [14 if mark else 9 for mark in marked],
            "symbol": [{"dense": "square", "no attention": "x"}.get(name, "circle") for name in frame["name"]],
        },
        cliponaxis=False, hovertemplate="%{customdata}: %{x:.3f} ms, accuracy %{y:.3f}<extra></extra>",
    )  # fmt: skip
    ceiling = frame[frame["name"] == "no attention"]["median_ms"]
    for value in ceiling:
        figure.add_vline(value, line={"color": GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="latency (milliseconds per call)", nticks=7)
    figure.update_yaxes(title="accuracy (0 to 1)", range=[0, 1.08], dtick=0.25)
    return figure


def _few_names(frame: pd.DataFrame, marked: "pd.Series[bool]") -> list[str]:
    """Return the names of the ends and of the marked point; the others would cover each other and show on hovering."""
    named = marked | frame["name"].isin(["dense", "no attention"])
    return [name if show else "" for name, show in zip(frame["name"], named, strict=True)]


def _beside(frame: pd.DataFrame) -> list[str]:
    """Return where names stand: away from the axis at the left end, away from the edge at the right end."""
    places = {"no attention": "bottom right", "dense": "bottom left"}
    return [places.get(name, "top center") for name in frame["name"]]


def speedup_chart(frame: pd.DataFrame, budget: float) -> go.Figure:
    """Draw measured and predicted speed-up against the budget, with the ceiling: no attention at all.

    Args:
        frame: see `latency_frame`.
        budget: the budget to mark.
    """
    figure = _figure(380)
    figure.update_layout(showlegend=True, margin_b=96)
    rows = frame[frame["heads"] > 0].sort_values("budget")
    for column, name, dash, symbol in (
        ("speedup", "measured", "solid", "circle"),
        ("predicted_speedup", "predicted by FLOPs", "dash", "diamond-open"),
    ):
        figure.add_scatter(
            x=rows["budget"], y=rows[column], name=name, mode="lines+markers", marker={"symbol": symbol, "size": 9},
            line={"color": ACCENT if column == "speedup" else GREY, "dash": dash},
            hovertemplate=f"{name}: %{{y:.2f}}x at budget %{{x:.2f}}<extra></extra>",
        )  # fmt: skip
    for value in frame[frame["heads"] == 0]["speedup"]:
        figure.add_hline(
            value, line={"color": ACCENT, "width": 1, "dash": "dot"},
            annotation={"text": f"ceiling, no attention: {value:.2f}x"}, annotation_position="top right",
        )  # fmt: skip
    figure.add_hline(1, line={"color": GREY, "width": 1})
    figure.add_vline(budget, line={"color": ACCENT, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="head budget (share of attention cost)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="speed-up (times as fast as dense)", rangemode="tozero")
    return figure
