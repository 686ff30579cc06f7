"""The two dials, head budget and FFN budget: sliders that stop only where something was measured."""

from collections.abc import Sequence

import streamlit as st

from bba.model import Setting
from bba.ui import state
from bba.ui.state import Choice

HEADS_HELP = (
    "1 keeps every attention head, 0.25 a quarter of them. The slider stops only at budgets that were measured."
)
COST_HELP = (
    "Cost is counted in floating-point operations of the encoder, on average over the texts, and all that is tried "
    "counts. The slider stops where budgets were chosen for it."
)
SECOND = 0.25
"""The head budget that is compared first."""
FFN_HELP = (
    "The feed-forward part comes after the attention of each layer; its neurons are cut in blocks. "
    "1 leaves it whole: only attention is cut, as in the paper."
)


def setting(choice: Choice) -> Setting:
    """Show the dials of a checkpoint and return what they are set to: the FFN dial only where there is one."""
    names = "Head budget: the share of the heads to pay", "FFN budget: the share of the feed-forward part to pay"
    return _dials(choice, *names, suffix="")


def second_setting(choice: Choice) -> Setting:
    """Show the dials of the setting that is compared, and return what they are set to."""
    return _dials(choice, "Head budget of B", "FFN budget of B", suffix="_b")


def turn_to(setting: Setting) -> None:
    """Set the dials; for the callback of a button, as Streamlit sets no slider that is drawn already."""
    st.session_state["budget"], st.session_state["ffn"] = setting


def mean_cost(costs: Sequence[float], default: float) -> float:
    """Show the dial of the Inputs page, which stops at the mean costs of a checkpoint's ladders, ascending."""
    label = "Mean cost to pay: a share of what all heads and blocks would cost"
    return _slider("mean_cost", label, costs, default, COST_HELP)


def _dials(choice: Choice, heads_label: str, ffn_label: str, suffix: str) -> Setting:
    ffn_stops = sorted({setting.ffn_budget for setting in choice.settings})
    if len(ffn_stops) == 1:
        return _head_dial(choice, heads_label, suffix, ffn_stops[0])
    left, right = st.columns(2, gap="large")
    with right:  # Called first: which head budgets were measured may depend on the FFN budget.
        ffn_budget = _slider(f"ffn{suffix}", ffn_label, ffn_stops, ffn_stops[-1], FFN_HELP)
    with left:
        return _head_dial(choice, heads_label, suffix, ffn_budget)


def _head_dial(choice: Choice, label: str, suffix: str, ffn_budget: float) -> Setting:
    stops = choice.at(Setting(1.0, ffn_budget)).stops
    default = state.nearest(SECOND if suffix else state.DEFAULT, stops)
    return Setting(_slider(f"budget{suffix}", label, stops, default, HEADS_HELP), ffn_budget)


def _slider(key: str, label: str, stops: Sequence[float], default: float, tooltip: str) -> float:
    """Show a slider and return its stop.

    What was asked for, also by a link, outlives a checkpoint that does not serve it: the slider then goes to the stop
    nearest to it, and back once a checkpoint has it.
    """
    known, asked = st.session_state.get(f"{key}_asked", ([], _linked(key)))
    if asked is not None and (known != stops or key not in st.session_state):
        st.session_state[key] = state.nearest(asked, stops)
    value: float = st.select_slider(
        label, stops, value=default, key=key, bind="query-params", format_func="{:g}".format, help=tooltip
    )
    if asked is None or value != state.nearest(asked, stops):
        asked = value
    st.session_state[f"{key}_asked"] = (stops, asked)
    return value


def _linked(key: str) -> float | None:
    """Return the share that the page's address asks for; None if there is none."""
    try:
        share = float(st.query_params.get(key, ""))
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
