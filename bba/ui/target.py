"""Pieces of the Latency page that find the setting for a latency target."""

import streamlit as st

from bba.backends import TORCH
from bba.errors import BBAError
from bba.measure.choice import Candidate, best_within, fastest, parse_milliseconds
from bba.measure.report import Latency
from bba.ui import dials, measuring, state
from bba.ui.measuring import Measurement
from bba.ui.state import Choice
from bba.ui.wording import count, milliseconds, percent, plain


def ask() -> tuple[float | None, bool]:
    """Ask for a target; return it in milliseconds, None if there is none, and whether to measure for it now."""
    with st.container(key="target_row", horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            "Latency target", key="target", bind="query-params", placeholder="such as 4 ms", max_chars=40, width=220,
            help="The most that one call may take on this machine. All settings are measured, and the one with the "
            "best accuracy on the validation texts that meets the target is chosen.",
        )  # fmt: skip
        pressed = st.button(
            "Find the best setting", key="find", icon=":material/target:", on_click=measuring.measure_all,
            disabled=not text.strip(),
        )  # fmt: skip
    if not text.strip():
        return None, False
    try:
        return parse_milliseconds(text), pressed
    except BBAError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return None, False


def result(choice: Choice, asked: Measurement, target_ms: float) -> None:
    """Show the setting for a target, once all settings were measured on this machine."""
    latency = state.known_latency(choice, asked.on, choice.settings)
    with st.container(key="target_result"):
        if latency is None:
            st.caption(
                f"Target {_exact(target_ms)}: press *Find the best setting* to measure all settings on this machine."
            )
            return
        latency = latency.on(TORCH)  # Accuracy was measured there; in int8 it is another.
        found = best_within(latency, choice.report.validation, target_ms)
        if found is None:
            _unreachable(fastest(latency, choice.report.validation), target_ms)
        else:
            _found(choice, latency, found, target_ms)


def _unreachable(quickest: Candidate, target_ms: float) -> None:
    st.warning(
        f"{_exact(target_ms)} is not reachable: the fastest setting, budget {quickest.setting}, "
        f"takes {_exact(quickest.median_ms)}.",
        icon=":material/block:",
    )


def _found(choice: Choice, latency: Latency, found: Candidate, target_ms: float) -> None:
    test, counts = choice.report.row(*found.setting), choice.report.counts
    st.success(
        f"Within {_exact(target_ms)}: **budget {found.setting}** takes {_exact(found.median_ms)} (median of "
        f"{latency.rounds} rounds, interquartile range {_exact(found.iqr_ms)}), {_exact(target_ms - found.median_ms)} "
        f"below the target. Chosen for its accuracy of {percent(found.accuracy)} on {count(counts['validation'])} "
        f"validation texts; on the {count(counts['test'])} test texts it reaches {percent(test.accuracy)} "
        f"({100 * test.accuracy_low:.1f} to {percent(test.accuracy_high)}).",
        icon=":material/check:",
    )
    st.button(
        f"Set the dials to {found.setting}", key="use", icon=":material/tune:", on_click=dials.turn_to,
        args=(found.setting,), disabled=found.setting == choice.setting,
    )  # fmt: skip


def _exact(value: float) -> str:
    """Return a time; a target that people typed is shown with all its digits up to the microsecond."""
    return milliseconds(value) if value < 0.001 or value >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".") + " ms"
