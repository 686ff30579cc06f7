"""Pieces of the Latency page: what to measure, the run with its progress, and what came out."""

import os
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bba.measure.latency import LatencySettings
from bba.measure.report import Latency
from bba.ui import charts, layout, state
from bba.ui.state import Choice
from bba.ui.wording import gain, plain, taken_on

QUARTERS = (0.25, 0.5, 0.75)


def settings(choice: Choice) -> tuple[LatencySettings, list[float]]:
    """Ask on what to measure and at which budgets; dense and the ceiling are always measured."""
    longest = choice.classifier.checkpoint.model.config.max_position_embeddings
    threads, batch, tokens = st.columns(3)
    with threads:
        count = st.segmented_control(
            "Threads", _powers(os.cpu_count() or 1), default=1, required=True, key="threads",
            help="Processor threads for one call.",
        )  # fmt: skip
    with batch:
        texts = st.segmented_control(
            "Texts at a time", [1, 8, 32], default=1, required=True, key="batch", help="The batch: texts in one call."
        )
    with tokens:
        lengths = [length for length in (16, 32, 64, 128) if length <= longest] or [longest]
        length = st.segmented_control(
            "Tokens per text", lengths, default=min(64, lengths[-1]), required=True, key=f"tokens_{lengths[-1]}",
            help="How long each text is.",
        )  # fmt: skip
    return LatencySettings(batch=texts, length=length, threads=count), _budgets(choice)


def _powers(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`."""
    return [2**power for power in range(most.bit_length())]


def _budgets(choice: Choice) -> list[float]:
    default = [stop for stop in choice.stops if stop in QUARTERS] or choice.stops[-1:]
    which = st.segmented_control(
        "Budgets", ["a few", "all measured"], default="a few", required=True, key="which",
        help="Dense and the ceiling, which is the model with no attention at all, are always measured too.",
    )  # fmt: skip
    if which == "all measured":
        return choice.stops
    return sorted({*default, choice.budget})


def result(choice: Choice, asked: LatencySettings, budgets: list[float]) -> None:
    """Show what was measured with these settings, or else what is stored, and say which of them it is."""
    live = state.known_latency(choice, asked, budgets)
    latency = live or choice.report.latency
    when = "Measured live on this machine" if live else "Stored with the checkpoint when it was made"
    st.markdown(f"**{when}**, {latency.date}: {plain(taken_on(latency))}.")
    frame = charts.latency_frame(latency, choice.report)
    frame["verdict"] = [gain(latency, row) for row in latency.rows]
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Accuracy against latency")
        alt = "Accuracy against measured latency, one point per budget, with dense and no attention"
        layout.chart(charts.accuracy_latency(frame, choice.budget), frame, "accuracy_latency", alt)
    with right:
        st.subheader("Speed-up, measured and predicted")
        alt = "Measured speed-up and the one predicted by FLOPs against budget, with the ceiling"
        layout.chart(charts.speedup_chart(frame, choice.budget), frame, "speedup", alt)
        st.caption(
            "What is missing to the prediction is work that FLOPs leave out: normalisation, softmax, look-ups and the "
            "calls themselves, which cost the same with fewer heads."
        )
    _lost(latency)
    with st.container(key="latency_table"):
        st.dataframe(frame, hide_index=True, column_config=_columns())


def _lost(latency: Latency) -> None:
    none = [f"{row.budget:g}" for row in latency.rows if row.heads and gain(latency, row) == "no measurable gain"]
    if none:
        st.info(f"No measurable gain at budget {', '.join(none)}: the speed-up is within the noise of this run.")


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "name": "model",
        "budget": number("budget asked", format="%.2f"),
        "heads": number("heads kept"),
        "median_ms": number("median, ms", format="%.3f"),
        "iqr_ms": number("IQR, ms", format="%.3f", help="Interquartile range over the rounds."),
        "speedup": number("speed-up, times", format="%.2f"),
        "predicted_speedup": number("by FLOPs, times", format="%.2f"),
        "accuracy": number("accuracy", format="%.3f"),
        "low": number("95 % low", format="%.3f"),
        "high": number("95 % high", format="%.3f"),
        "verdict": "verdict",
    }


def measure(choice: Choice, asked: LatencySettings, budgets: list[float], place: DeltaGenerator) -> None:
    """Measure with progress, then draw the page anew; any click, such as on Stop, ends it."""
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Warming up…")
        st.button("Stop", key="stop", icon=":material/stop:")

    def progress(done: float) -> None:
        bar.progress(done, f"Measuring… {done:.0%}")

    def waiting() -> None:
        bar.progress(0.0, "Another measurement is running on this machine; this one follows when it has ended…")

    state.live_latency(choice, asked, budgets, progress, waiting)
    st.rerun()
