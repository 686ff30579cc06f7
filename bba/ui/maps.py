"""Maps of a model's units, layer by layer: attention heads and feed-forward blocks. No Streamlit in here."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from bba.pruning.plan import Kept, Plan
from bba.ui.charts import ACCENT, GREY, SECOND, blank

EARLY, LATE = "#123f73", "#2f78bd"
"""Open units, from budget 0 to budget 1; white letters are readable on both."""
MANY = 8
"""From more heads in a layer on, a number in a box goes without its leading zero."""


class Look(NamedTuple):
    """How a unit of one state is drawn; states differ in outline and letter, not in colour alone."""

    fill: str | None
    """None for a colour between EARLY and LATE, by the budget at which the unit opens."""
    line: dict[str, object]
    text: str | None
    """Colour of what stands in the box; None for that of the page's text."""
    letter: str
    """Stands in the box instead of the opening budget."""


_NOTHING = "rgba(0, 0, 0, 0)"
_CLOSED = Look(_NOTHING, {"width": 1, "color": GREY, "dash": "dot"}, None, "")
LOOKS = {
    "open": Look(None, {"width": 0}, "#ffffff", ""),
    "closed": _CLOSED,
    "removed": Look(_NOTHING, {"width": 0}, GREY, "x"),
    "in both": Look(None, {"width": 0}, "#ffffff", ""),
    "only in A": Look("rgba(42, 123, 196, 0.22)", {"width": 2, "color": ACCENT}, None, "A"),
    "only in B": Look("rgba(217, 114, 15, 0.22)", {"width": 2, "color": SECOND, "dash": "dash"}, None, "B"),
    "in neither": _CLOSED,
}

Openings = Sequence[Sequence[float | None]]
"""Layer by layer the budget at which each unit opens; None if it is gone."""


def unit_frame(heads: Openings, blocks: Openings, first: Plan, second: Plan | None = None) -> pd.DataFrame:
    """Return a row per unit: kind (head, block), layer and number (from 1), opens_at, state.

    Args:
        heads: see `Openings`.
        blocks: the same of the feed-forward blocks; no units where there is no FFN dial.
        first: what is open. The states are then open, closed and removed.
        second: what is open in a second setting, to be compared: in both, only in A, only in B, in neither, removed.
    """
    rows = []
    for kind, openings, one, other in (
        ("head", heads, first.heads, second.heads if second else None),
        ("block", blocks, first.blocks, second.blocks if second else None),
    ):
        for layer, budgets in enumerate(openings):
            for number, budget in enumerate(budgets):
                state = "removed" if budget is None else _state(layer, number, one, other)
                rows.append((kind, layer + 1, number + 1, budget, state))
    return pd.DataFrame(rows, columns=["kind", "layer", "number", "opens_at", "state"])


def _state(layer: int, number: int, one: Kept, other: Kept | None) -> str:
    first = number in one[layer]
    if other is None:
        return "open" if first else "closed"
    second = number in other[layer]
    return {(True, True): "in both", (True, False): "only in A", (False, True): "only in B"}.get(
        (first, second), "in neither"
    )


def unit_map(frame: pd.DataFrame, title: str) -> go.Figure:
    """Draw a box per unit, heads above the feed-forward blocks of their layer.

    Args:
        frame: see `unit_frame`.
        title: a short line, or two with <br> between.
    """
    blocks = frame["kind"].eq("block").any()
    layers, heads = int(frame["layer"].max()), int(frame[frame["kind"] == "head"]["number"].max())
    placed = _placed(frame, heads)
    top = 40 + 18 * title.count("<br>")
    figure = blank(
        (66 if blocks else 52) * layers + top + 60,
        title={
            "text": title,
            "x": 0,
            "xref": "paper",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": top - 32},
        },
        shapes=_boxes(placed),
    )
    figure.update_layout(title_font_size=15, margin={"t": top, "l": 46})
    for (kind, state), part in placed.groupby(["kind", "state"], sort=False):
        _write(figure, part, kind, LOOKS[state], heads)
    figure.update_xaxes(title="head", dtick=1, range=[0.5, heads + 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(title="layer", dtick=1, range=[layers + 0.5, 0.5], showgrid=False, zeroline=False)
    return figure


def _placed(frame: pd.DataFrame, heads: int) -> pd.DataFrame:
    """Return the frame with the middle (x, y) and half the size (dx, dy) of each box, in units of a head."""
    block = frame["kind"] == "block"
    step = heads / frame[block]["number"].max() if block.any() else 1.0
    placed = frame.copy()
    placed["x"] = frame["number"].where(~block, 0.5 + (frame["number"] - 0.5) * step)
    placed["y"] = frame["layer"] + (block.map({True: 0.32, False: -0.16}) if block.any() else 0.0)
    placed["dx"] = block.map({True: 0.40 * step, False: 0.46})
    placed["dy"] = block.map({True: 0.12, False: 0.30 if block.any() else 0.44})
    return placed


def _boxes(placed: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the boxes as shapes, those of one look in one shape: a browser draws few shapes faster than many."""
    paths: dict[tuple[str, str, str], list[str]] = {}
    for row in placed.itertuples(index=False):
        look = LOOKS[row.state]
        fill = _blend(row.opens_at if row.kind == "head" else 0.7) if look.fill is None else look.fill
        left, right, low, high = (
            f"{value:.4g}" for value in (row.x - row.dx, row.x + row.dx, row.y - row.dy, row.y + row.dy)
        )
        path = f"M{left},{low}L{right},{low}L{right},{high}L{left},{high}Z"
        paths.setdefault((row.kind, row.state, fill), []).append(path)
    return [
        {"type": "path", "layer": "below", "path": "".join(parts), "fillcolor": fill, "line": _line(kind, state)}
        for (kind, state, fill), parts in paths.items()
    ]


def _line(kind: str, state: str) -> dict[str, object]:
    """Return the outline of a box, a thin one for the small boxes of blocks."""
    line = LOOKS[state].line
    return {**line, "width": 1} if kind == "block" and line["width"] else line


def _write(figure: go.Figure, part: pd.DataFrame, kind: str, look: Look, heads: int) -> None:
    """Put numbers or letters into the boxes of one kind and state, and what a pointer over them reads."""
    opens = ["" if pd.isna(budget) else f"<br>open from budget {_ceil(budget)}" for budget in part["opens_at"]]
    head = kind == "head"
    texts = (
        [look.letter or _number(budget, heads) for budget in part["opens_at"]] if head else [look.letter] * len(part)
    )
    name = "head" if head else "feed-forward block"
    figure.add_scatter(
        x=part["x"], y=part["y"], text=texts, mode="text" if head else "markers+text", customdata=list(zip(
            part["layer"], part["number"], part["state"], opens, strict=True)),
        marker={"size": 10, "opacity": 0}, textfont={"color": look.text, "size": _letters(head, heads)},
        hovertemplate=f"layer %{{customdata[0]}}, {name} %{{customdata[1]}}<br>%{{customdata[2]}}%{{customdata[3]}}"
        "<extra></extra>",
    )  # fmt: skip


def _letters(head: bool, heads: int) -> int:
    """Return the size of letters in a box."""
    if not head:
        return 9
    return 14 if heads <= MANY else 11


def _number(budget: float, heads: int) -> str:
    """Return the budget at which a head opens, short enough for its box."""
    text = _ceil(budget)
    return text if heads <= MANY else text.removeprefix("0").removesuffix(".00")


def _ceil(budget: float) -> str:
    """Return a budget rounded up to two decimals: at the rounded value the unit is open."""
    return f"{math.ceil(budget * 100 - 1e-3) / 100:.2f}"


def _blend(share: float) -> str:
    """Return the colour between EARLY (0) and LATE (1)."""
    ends = zip(*([int(color[place : place + 2], 16) for place in (1, 3, 5)] for color in (EARLY, LATE)), strict=True)
    return "rgb({}, {}, {})".format(*(round(low + (high - low) * share) for low, high in ends))
