"""Figures from plain values: no Streamlit in here. Colours are readable on light and dark ground and without colour."""

import html
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from bba.measure.choice import unbeaten
from bba.measure.report import BudgetRow, Latency, LatencyRow, Report
from bba.model import Setting

ACCENT = "#2a7bc4"
BAND = "rgba(42, 123, 196, 0.25)"
SECOND = "#d9720f"
"""The second of two things that are compared."""
GREY = "#7d838c"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
COLORS = (ACCENT, "#d9720f", "#11966b", "#c2619e", "#a58500", GREY)
KINDS = (
    ("dense", "dense", "square", 9),
    ("heads", "attention only", "circle", 8),
    ("pairs", "both dials", "diamond-open", 9),
)
"""Kind of a measured point, its name in the legend, symbol and size: told apart by shape, not by colour."""
MAX_LABELS = 6
"""Labels drawn as lines; more cannot be told apart."""


def literal(text: str) -> str:
    """Return text that plotly shows as it stands, without reading tags in it."""
    return html.escape(text, quote=False)


def shorten(text: str, letters: int = 18) -> str:
    """Return text cut to a length that fits beside an axis."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def blank(height: int, **layout: object) -> go.Figure:
    """Return an empty figure with the look that all share."""
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


def probability_bars(probabilities: dict[str, float]) -> go.Figure:
    """Draw a bar per label, the most probable in the accent colour; the scale is always 0 to 1."""
    best = max(probabilities, key=probabilities.__getitem__)
    figure = blank(36 * len(probabilities) + 70, bargap=0.25)
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
    """Return accuracy, its 95 % Wilson interval (low, high), macro-F1 and what is kept, a row per setting."""
    columns = ["budget", "ffn_budget", "heads", "blocks", "cost", "encoder_cost", "accuracy"]
    values = [
        (*(getattr(row, name) for name in columns), row.accuracy_low, row.accuracy_high, row.macro_f1) for row in rows
    ]
    return pd.DataFrame(values, columns=[*columns, "low", "high", "macro_f1"])


def accuracy_line(frame: pd.DataFrame, setting: Setting) -> go.Figure:
    """Draw accuracy against the head budget with its interval, between no attention (budget 0) and all there is.

    Args:
        frame: see `accuracy_frame`; the row of budget 0 is the model without attention.
        setting: the one to mark; the line is that of its FFN budget, with a grey one where only attention is cut.
    """
    figure = blank(300)
    rows = frame.sort_values("budget")
    line, none = rows[(rows["ffn_budget"] == setting.ffn_budget) & (rows["budget"] > 0)], rows[rows["budget"] == 0]
    ends = {"x": line["budget"], "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    figure.add_scatter(**ends, y=line["low"])
    figure.add_scatter(**ends, y=line["high"], fill="tonexty", fillcolor=BAND)
    if setting.ffn_budget < 1:
        whole = rows[(rows["ffn_budget"] == 1) & (rows["budget"] > 0)]
        figure.add_scatter(
            x=whole["budget"], y=whole["accuracy"], mode="lines+markers", line={"color": GREY, "dash": "dash"},
            marker={"symbol": "square", "size": 5},
            hovertemplate="attention only, budget %{x:.2f}: accuracy %{y:.3f}<extra></extra>",
        )  # fmt: skip
    hover = f"budget %{{x:.2f}}{of_ffn(setting)}: accuracy %{{y:.3f}}<extra></extra>"
    points = {"x": line["budget"], "y": line["accuracy"], "hovertemplate": hover}
    figure.add_scatter(**points, mode="lines+markers", line={"color": ACCENT})
    now = line[line["budget"] == setting.budget]
    figure.add_scatter(
        x=now["budget"], y=now["accuracy"], mode="markers", hovertemplate=hover,
        marker={"size": 15, "color": ACCENT, "line": {"width": 3, "color": "#ffffff"}},
    )  # fmt: skip
    figure.add_vline(setting.budget, line={"color": ACCENT, "width": 1, "dash": "dot"})
    _level(figure, float(line["accuracy"].iloc[-1]), "all heads", "bottom right", "dash")
    for level in none["accuracy"]:
        _level(figure, level, "no attention at all", "top right", "dot")
    figure.update_xaxes(title="head budget asked (share of the heads)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="accuracy (0 to 1)", range=[0, 1.04], dtick=0.25)
    return figure


def of_ffn(setting: Setting) -> str:
    """Return the FFN budget in words for a hover or a sentence; nothing where only attention is cut."""
    return f", FFN budget {setting.ffn_budget:g}" if setting.ffn_budget < 1 else ""


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
    figure = blank(370)
    figure.update_layout(showlegend=True, margin_b=126)
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
    figure.update_xaxes(title="head budget asked (share of the heads)", range=[0, 1.02], dtick=0.25)
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
    """Return a measurement with each row's accuracy and cost: the dense row first, the ceiling (budget 0) last.

    The column `unbeaten` tells that no other setting is at least as fast and as accurate, and better in one of them.
    """
    known = {(row.heads, row.blocks): row for row in [*report.test, *filter(None, [report.no_attention])]}
    frame = pd.DataFrame([_timed(row, known.get((row.heads, row.blocks))) for row in latency.rows])
    frame.loc[0, "name"] = "dense"
    frame["unbeaten"] = False
    rivals = frame[(frame["heads"] > 0) & frame["accuracy"].notna()]
    frame.loc[rivals.index, "unbeaten"] = unbeaten(list(rivals["median_ms"]), list(rivals["accuracy"]))
    return frame


def _timed(row: LatencyRow, quality: BudgetRow | None) -> dict[str, object]:
    return {
        "name": str(row.setting) if row.heads else "no attention",
        "budget": row.budget,
        "ffn_budget": row.ffn_budget,
        "heads": row.heads,
        "blocks": row.blocks,
        "encoder_cost": quality.encoder_cost if quality else None,
        "median_ms": row.median_ms,
        "iqr_ms": row.iqr_ms,
        "speedup": row.speedup,
        "predicted_speedup": row.predicted_speedup,
        "accuracy": quality.accuracy if quality else None,
        "low": quality.accuracy_low if quality else None,
        "high": quality.accuracy_high if quality else None,
    }


def _kind(frame: pd.DataFrame) -> "pd.Series[str]":
    kinds = (frame["ffn_budget"] < 1).map({True: "pairs", False: "heads"})
    return kinds.mask(frame["name"] == "dense", "dense").mask(frame["name"] == "no attention", "ceiling")


def frontier(frame: pd.DataFrame, setting: Setting, target_ms: float | None) -> go.Figure:
    """Draw accuracy against measured latency: all settings, and a line that joins those that no other beats.

    Bars are the interquartile range and the 95 % Wilson interval.

    Args:
        frame: see `latency_frame`.
        setting: the one to mark, if it was measured.
        target_ms: a latency target to draw, in milliseconds, if it lies among the points.
    """
    figure = blank(430)
    figure.update_layout(showlegend=True, margin_b=136)
    scored = frame[(frame["heads"] > 0) & frame["accuracy"].notna()].sort_values("median_ms")
    best = scored[scored["unbeaten"]]
    figure.add_scatter(
        x=best["median_ms"], y=best["accuracy"], mode="lines", name="unbeaten", hoverinfo="skip",
        line={"color": ACCENT, "width": 2, "dash": "dot"},
    )  # fmt: skip
    kinds = _kind(scored)
    for kind, name, symbol, size in KINDS:
        _points(figure, scored[kinds == kind], name, {"symbol": symbol, "size": size, "color": ACCENT})
    now = scored[(scored["budget"] == setting.budget) & (scored["ffn_budget"] == setting.ffn_budget)]
    mark = {"symbol": "circle-open", "size": 18, "color": SECOND, "line": {"width": 3}}
    figure.add_scatter(
        x=now["median_ms"], y=now["accuracy"], mode="markers", name="chosen now", marker=mark, hoverinfo="skip"
    )
    _time_lines(figure, frame, target_ms)
    figure.update_xaxes(title="latency (milliseconds per call)", nticks=7, range=span(frame["median_ms"]))
    figure.update_yaxes(title="accuracy (axis not from 0)", range=span(pd.concat([scored["low"], scored["high"]])))
    return figure


def _points(figure: go.Figure, part: pd.DataFrame, name: str, marker: dict[str, object]) -> None:
    if part.empty:
        return
    bar = {"thickness": 0.7, "width": 2, "color": GREY}
    figure.add_scatter(
        x=part["median_ms"], y=part["accuracy"], mode="markers", name=name, marker=marker,
        customdata=part[["name", "encoder_cost"]],
        error_x={"array": part["iqr_ms"] / 2, **bar},
        error_y={"array": part["high"] - part["accuracy"], "arrayminus": part["accuracy"] - part["low"], **bar},
        hovertemplate="budget %{customdata[0]}: %{x:.3f} ms, accuracy %{y:.3f}<br>"
        "encoder cost %{customdata[1]:.3f}<extra></extra>",
    )  # fmt: skip


def _time_lines(figure: go.Figure, frame: pd.DataFrame, target_ms: float | None) -> None:
    """Draw where the ceiling and the target lie on the axis of time."""
    for _, none in frame[frame["heads"] == 0].iterrows():
        figure.add_vline(
            none["median_ms"], line={"color": GREY, "width": 1, "dash": "dot"},
            annotation={"text": f"no attention: {none['median_ms']:.2f} ms", "textangle": -90, "yanchor": "top"},
            annotation_position="top left",
        )  # fmt: skip
    if target_ms is not None:
        figure.add_vline(
            target_ms, line={"color": SECOND, "width": 2, "dash": "dash"},
            annotation={"text": f"target: {target_ms:g} ms", "textangle": -90, "yanchor": "bottom"},
            annotation_position="bottom right",
        )  # fmt: skip


def span(values: "pd.Series[float]") -> list[float]:
    """Return the ends of an axis that shows all values with some room."""
    room = 0.08 * (values.max() - values.min()) or 0.01
    return [values.min() - room, values.max() + room]


def speedup_chart(frame: pd.DataFrame, setting: Setting) -> go.Figure:
    """Draw measured and predicted speed-up against the share of the encoder's FLOPs, with the ceiling: no attention.

    Args:
        frame: see `latency_frame`.
        setting: the one to mark, if it was measured.
    """
    figure = blank(430)
    figure.update_layout(showlegend=True, margin_b=136)
    rows = frame[(frame["heads"] > 0) & frame["encoder_cost"].notna()].sort_values("encoder_cost")
    figure.add_scatter(
        x=rows["encoder_cost"], y=rows["predicted_speedup"], name="predicted by FLOPs", mode="lines",
        line={"color": GREY, "dash": "dash"}, hovertemplate="predicted by FLOPs: %{y:.2f}x<extra></extra>",
    )  # fmt: skip
    kinds = _kind(rows)
    for kind, name, symbol, size in KINDS:
        part = rows[kinds == kind]
        if not part.empty:
            figure.add_scatter(
                x=part["encoder_cost"], y=part["speedup"], name=name, customdata=part["name"],
                mode="lines+markers" if kind == "heads" else "markers", line={"color": ACCENT, "width": 1},
                marker={"symbol": symbol, "size": size, "color": ACCENT},
                hovertemplate="%{customdata}: measured %{y:.2f}x at encoder cost %{x:.3f}<extra></extra>",
            )  # fmt: skip
    for value in frame[frame["heads"] == 0]["speedup"]:
        figure.add_hline(
            value, line={"color": ACCENT, "width": 1, "dash": "dot"},
            annotation={"text": f"no attention at all: {value:.2f}x"}, annotation_position="top right",
        )  # fmt: skip
    figure.add_hline(1, line={"color": GREY, "width": 1})
    for cost in rows[(rows["budget"] == setting.budget) & (rows["ffn_budget"] == setting.ffn_budget)]["encoder_cost"]:
        figure.add_vline(cost, line={"color": ACCENT, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="encoder cost (share of the dense encoder's FLOPs)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="speed-up (times as fast as dense)", rangemode="tozero")
    return figure


def weight_bars(words: Sequence[str], weights: Sequence[float]) -> go.Figure:
    """Draw how much is looked at each of a few words, the most first; the scale is always 0 to 1."""
    figure = blank(30 * len(words) + 70, bargap=0.25)
    figure.add_bar(
        x=list(weights), y=list(range(len(words))), orientation="h", marker_color=ACCENT, textangle=0,
        text=[f"{weight:.3f}" for weight in weights],
        textposition=["inside" if weight > 0.5 else "outside" for weight in weights],
        customdata=[literal(word) for word in words], hovertemplate="%{customdata}: %{x:.4f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="attention weight (0 to 1)", range=[0, 1], dtick=0.25)
    names = [literal(shorten(word)) for word in words]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, autorange="reversed")
    figure.update_layout(margin_l=24 + 8 * max(len(shorten(word)) for word in words))
    return figure
