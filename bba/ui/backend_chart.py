"""The figure of latency by backend: the same pruned models in torch and in ONNX Runtime."""

import pandas as pd
import plotly.graph_objects as go

from bba.backends import BACKENDS, NAMES
from bba.ui.charts import COLORS, DASHES, SYMBOLS, blank


def latency_by_backend(frame: pd.DataFrame) -> go.Figure:
    """Draw latency against the setting, a line for each backend; bars are the interquartile range.

    Args:
        frame: columns name, backend, median_ms, iqr_ms and speedup, a row for each setting and backend.
    """
    figure = blank(430)
    figure.update_layout(showlegend=True, margin_b=136)
    order = frame[frame["backend"] == frame["backend"].iloc[0]].sort_values("median_ms", ascending=False)["name"]
    for place, backend in enumerate(BACKENDS):
        part = frame[frame["backend"] == backend].set_index("name").reindex(order).dropna(subset=["median_ms"])
        if part.empty:
            continue
        figure.add_scatter(
            x=part.index, y=part["median_ms"], name=NAMES[backend], mode="lines+markers", customdata=part["speedup"],
            line={"color": COLORS[place], "dash": DASHES[place]}, marker={"symbol": SYMBOLS[place], "size": 9},
            error_y={"array": part["iqr_ms"] / 2, "thickness": 0.7, "width": 2},
            hovertemplate=f"{NAMES[backend]}, %{{x}}: %{{y:.3f}} ms, %{{customdata:.2f}} times as fast as dense in "
            "torch<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="budget", type="category", categoryorder="array", categoryarray=list(order))
    figure.update_yaxes(title="latency (milliseconds per call)", rangemode="tozero")
    return figure
