"""Figures of the Inputs page, from plain values: no Streamlit in here."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from bba.measure.ladder import Ladder, Routing
from bba.predict import Step
from bba.ui.charts import ACCENT, COLORS, GREY, SECOND, blank, literal, shorten, span

PATTERNS = ("", "/", "x")
"""Rungs are told apart by these too, not by colour alone."""


def steps_frame(steps: Sequence[Step]) -> pd.DataFrame:
    """Return a row per budget that a text was tried at: budget, label, probability, threshold, stays."""
    rows = [
        (str(step.rung.setting), step.label, step.probability, step.rung.threshold, step is steps[-1]) for step in steps
    ]
    return pd.DataFrame(rows, columns=["budget", "label", "probability", "threshold", "stays"])


def steps_chart(frame: pd.DataFrame) -> go.Figure:
    """Draw how sure the model was at each budget, and how sure it had to be; see `steps_frame`."""
    figure = blank(52 * len(frame) + 76, bargap=0.45)
    places = list(range(len(frame)))
    figure.add_bar(
        x=frame["probability"], y=places, orientation="h", marker_color=frame["stays"].map({True: ACCENT, False: GREY}),
        text=[f"{literal(shorten(row.label))} {row.probability:.3f}" for row in frame.itertuples()],
        textposition="inside", insidetextanchor="start", textangle=0, textfont_color="#ffffff",
        customdata=frame["budget"], hovertemplate="budget %{customdata}: %{text}<extra></extra>",
    )  # fmt: skip
    asked = frame[frame["threshold"] > 0]
    for place in asked.index:
        needed = asked["threshold"][place]
        figure.add_shape(
            type="line", x0=needed, x1=needed, y0=place - 0.42, y1=place + 0.42, line={"color": SECOND, "width": 3}
        )
    figure.update_xaxes(title="probability of the answer (0 to 1)", range=[0, 1.005], dtick=0.25)
    names = [f"budget {budget}" for budget in frame["budget"]]
    figure.update_yaxes(tickvals=places, ticktext=names, range=[len(frame) - 0.4, -0.6])
    figure.update_layout(margin_l=28 + 7 * max(len(name) for name in names))
    return figure


def shares_frame(groups: Sequence[str], shares: Sequence[Sequence[float]], ladder: Ladder) -> pd.DataFrame:
    """Return a row per group and rung: the share of the group's texts that stays there; groups without texts go."""
    rows = [
        (group, str(rung.setting), share)
        for group, of_group in zip(groups, shares, strict=True)
        if sum(of_group)
        for rung, share in zip(ladder.rungs, of_group, strict=True)
    ]
    return pd.DataFrame(rows, columns=["group", "budget", "share"])


def shares_chart(frame: pd.DataFrame) -> go.Figure:
    """Draw a bar per group, split by the budget where its texts stay; see `shares_frame`."""
    groups = list(frame["group"].unique())
    figure = blank(30 * len(groups) + 160, bargap=0.25, barmode="stack")
    legend = {"y": 0, "yref": "container", "yanchor": "bottom", "traceorder": "normal"}
    figure.update_layout(showlegend=True, margin_b=140, legend=legend)
    for place, budget in enumerate(frame["budget"].unique()):
        part = frame[frame["budget"] == budget]
        figure.add_bar(
            x=part["share"], y=[groups.index(group) for group in part["group"]], orientation="h",
            name=f"budget {budget}", marker={"color": COLORS[place], "pattern": {
                "shape": PATTERNS[place], "fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.6)", "size": 6}},
            customdata=[literal(group) for group in part["group"]],
            hovertemplate=f"%{{customdata}}: %{{x:.1%}} of the texts stay at budget {budget}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="share of the test texts", range=[0, 1], dtick=0.25, tickformat=".0%")
    names = [literal(shorten(group)) for group in groups]
    figure.update_yaxes(tickvals=list(range(len(groups))), ticktext=names, range=[len(groups) - 0.4, -0.6])
    figure.update_layout(margin_l=24 + 7 * max(len(shorten(group)) for group in groups))
    return figure


def trade_off_frame(routing: Routing) -> pd.DataFrame:
    """Return a row per ladder and per fixed budget: kind, name, cost, accuracy, low, high; all on the test texts."""
    fixed = [("one budget", str(row.setting), row.test_cost, row.test_accuracy, None, None) for row in routing.fixed]
    ladders = [
        ("per text", climbs(ladder), ladder.test.cost, ladder.test.accuracy, ladder.test.accuracy_low,
         ladder.test.accuracy_high)
        for ladder in routing.ladders
    ]  # fmt: skip
    return pd.DataFrame([*fixed, *ladders], columns=["kind", "name", "cost", "accuracy", "low", "high"])


def climbs(ladder: Ladder) -> str:
    """Return the budgets of a ladder in words."""
    return " → ".join(str(rung.setting) for rung in ladder.rungs)


def trade_off(frame: pd.DataFrame, chosen: Ladder) -> go.Figure:
    """Draw accuracy against cost: budgets per text joined by a line, and the same budget for all as single points.

    Args:
        frame: see `trade_off_frame`.
        chosen: the ladder to mark.
    """
    figure = blank(430)
    figure.update_layout(showlegend=True, margin_b=116)
    hover = "%{customdata}: accuracy %{y:.4f} at cost %{x:.3f}<extra></extra>"
    fixed, ladders = frame[frame["kind"] == "one budget"], frame[frame["kind"] == "per text"]
    figure.add_scatter(
        x=fixed["cost"], y=fixed["accuracy"], customdata=fixed["name"], mode="markers", hovertemplate=hover,
        name="the same budget for all texts", marker={"symbol": "square-open", "size": 9, "color": GREY},
    )  # fmt: skip
    figure.add_scatter(
        x=ladders["cost"], y=ladders["accuracy"], customdata=ladders["name"], mode="lines+markers", hovertemplate=hover,
        name="a budget for each text", line={"color": ACCENT, "width": 1}, marker={"size": 8, "color": ACCENT},
        error_y={"array": ladders["high"] - ladders["accuracy"], "arrayminus": ladders["accuracy"] - ladders["low"],
                 "thickness": 0.7, "width": 2, "color": GREY},
    )  # fmt: skip
    figure.add_scatter(
        x=[chosen.test.cost], y=[chosen.test.accuracy], mode="markers", name="chosen now", hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 18, "color": SECOND, "line": {"width": 3}},
    )  # fmt: skip
    figure.update_xaxes(title="mean cost (share of the dense encoder's FLOPs)", range=[0, 1.02], dtick=0.25)
    figure.update_yaxes(title="accuracy (axis not from 0)", range=span(frame[["accuracy", "low", "high"]].stack()))
    return figure
