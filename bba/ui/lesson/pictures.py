"""Figures of the lesson from plain values: no Streamlit in here."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bba.measure.report import Latency
from bba.training.live_run import EVERY, Sight
from bba.ui.charts import ACCENT, BAND, GREY, SECOND, blank
from bba.ui.wording import milliseconds

WAYS = ("all heads", "masked", "pruned")


def answers_of(probabilities: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """Draw the probability of each label as each of a few models gives it; the scale is always 0 to 1.

    Args:
        probabilities: for the name of each model the probability of each label.
    """
    figure = blank(340, bargap=0.3, barmode="group")
    figure.update_layout(showlegend=True, margin_b=92)
    for color, pattern, (name, values) in zip((ACCENT, SECOND), ("", "/"), probabilities.items(), strict=False):
        figure.add_bar(
            x=list(values), y=list(values.values()), name=name, marker={"color": color, "pattern": {"shape": pattern}},
            text=[f"{value:.2f}" for value in values.values()], textposition="outside", cliponaxis=False,
            hovertemplate=f"{name}, %{{x}}: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="who took it last?")
    figure.update_yaxes(title="probability (0 to 1)", range=[0, 1.08], tickvals=[0, 0.25, 0.5, 0.75, 1])
    return figure


def weights_left(weights: Sequence[int]) -> go.Figure:
    """Draw how many weights the attention has with all heads, masked and pruned."""
    figure = _three_bars([value / 1000 for value in weights], [f"{value / 1000:.1f} thousand" for value in weights])
    figure.update_yaxes(title="attention weights (thousands)")
    return figure


def times(latency: Latency) -> go.Figure:
    """Draw the median time of all heads, masked and pruned, with the interquartile range."""
    medians = [row.median_ms for row in latency.rows]
    figure = _three_bars(medians, [milliseconds(value) for value in medians])
    spread = [row.iqr_ms / 2 for row in latency.rows]
    figure.update_traces(error_y={"array": spread, "color": GREY, "thickness": 1.5, "width": 6})
    figure.update_yaxes(title=f"milliseconds for {latency.batch} texts")
    return figure


def _three_bars(values: Sequence[float], told: Sequence[str]) -> go.Figure:
    """Draw a bar for each way, with its value under its name, where no error bar can be in the way."""
    figure = blank(340, bargap=0.35)
    figure.add_bar(
        x=[f"{way}<br>{text}" for way, text in zip(WAYS, told, strict=True)], y=list(values),
        marker={"color": [GREY, SECOND, ACCENT], "pattern": {"shape": ["", "/", ""]}},
        hovertemplate="%{x}<extra></extra>",
    )  # fmt: skip
    return figure


def one_against_many(best: pd.DataFrame, ours: pd.DataFrame | None) -> go.Figure:
    """Draw the accuracy of the best specialist of each budget and, if it is given, of the one budgeted checkpoint.

    Args:
        best: see `best_specialists`.
        ours: the rows of the budgeted checkpoint, see `summarise`.
    """
    figure = blank(360)
    figure.update_layout(showlegend=True, margin_b=106)
    for rows, name, color, symbol, mode in (
        (best, "best specialist of this budget", SECOND, "square", "markers"),
        (ours, "one checkpoint, all budgets", ACCENT, "circle", "lines+markers"),
    ):
        if rows is not None:
            rows = rows.sort_values("budget")
            figure.add_scatter(
                x=rows["budget"], y=rows["accuracy"], name=name, mode=mode, line={"color": color},
                marker={"color": color, "symbol": symbol, "size": 10},
                error_y={"array": rows["accuracy_sd"].fillna(0), "color": GREY, "thickness": 1, "width": 4},
                hovertemplate=f"{name}, budget %{{x}}: accuracy %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="head budget asked (share of the heads)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="accuracy (0 to 1)", range=[0, 1.04], dtick=0.25)
    return figure


def needs(enough: np.ndarray, stops: Sequence[float]) -> tuple[go.Figure, pd.DataFrame]:
    """Draw how many texts need which budget; return the figure and its values.

    Args:
        enough: the smallest budget that each text is content with, NaN for none.
        stops: all measured budgets, ascending.
    """
    counts = [int((enough == stop).sum()) for stop in stops]
    shares = [100 * count / len(enough) for count in (*counts, int(np.isnan(enough).sum()))]
    frame = pd.DataFrame({"budget": [*(f"{stop:g}" for stop in stops), "none"], "percent": shares})
    figure = blank(340, bargap=0.15)
    figure.add_bar(
        x=frame["budget"], y=frame["percent"], marker_color=[ACCENT] * len(stops) + [GREY],
        hovertemplate="budget %{x}: %{y:.1f} % of the texts<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="smallest budget that stays right", type="category", tickangle=-60, tickfont_size=11)
    figure.update_yaxes(title="texts (%)", range=[0, max(shares) * 1.08])
    return figure, frame


def gate_map(sight: Sight) -> go.Figure:
    """Draw how open each head is at half of the budget: a number and a colour in a box for each."""
    gates = np.array(sight.gates)
    layers, heads = gates.shape
    figure = blank(60 * layers + 70)
    figure.add_heatmap(
        z=gates, x=list(range(1, heads + 1)), y=list(range(1, layers + 1)), zmin=0, zmax=1, xgap=5, ygap=5,
        colorscale=[[0, "#e3e8ee"], [1, "#123f73"]], showscale=False, texttemplate="%{z:.2f}", textfont_size=14,
        hovertemplate="layer %{y}, head %{x}: gate %{z:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="head", dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(title="layer", dtick=1, autorange="reversed", showgrid=False, zeroline=False)
    return figure


def loss_line(sights: Sequence[Sight]) -> go.Figure:
    """Draw the training loss over all steps; lines stand where the stages begin."""
    figure = blank(250)
    figure.add_scatter(
        x=[sight.step for sight in sights], y=[sight.loss for sight in sights], mode="lines", line={"color": ACCENT},
        hovertemplate="step %{x}: loss %{y:.3f}<extra></extra>",
    )  # fmt: skip
    starts = {sight.stage: sight.step for sight in reversed(sights)}
    for stage, step in starts.items():
        figure.add_vline(
            max(0, step - EVERY), line={"color": GREY, "width": 1, "dash": "dot"}, annotation={"text": stage},
            annotation_position="top right",
        )  # fmt: skip
    figure.update_xaxes(title="training step", range=[0, sights[-1].steps], nticks=5)
    figure.update_yaxes(title="training loss", rangemode="tozero")
    return figure


def accuracy_now(sight: Sight, best: int) -> go.Figure:
    """Draw the accuracy with each number of heads; the grey line is chance.

    Args:
        sight: what is seen now.
        best: how many labels there are.
    """
    figure = blank(250)
    heads = list(range(1, len(sight.accuracy) + 1))
    figure.add_scatter(
        x=heads, y=sight.accuracy, mode="lines+markers", line={"color": ACCENT}, fill="tozeroy", fillcolor=BAND,
        hovertemplate="%{x} heads: accuracy %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_hline(1 / best, line={"color": GREY, "width": 1, "dash": "dot"}, annotation={"text": "chance"},
                     annotation_position="top right")  # fmt: skip
    figure.update_xaxes(title="heads open", dtick=1)
    figure.update_yaxes(title="accuracy (0 to 1)", range=[0, 1.04], dtick=0.25)
    return figure
