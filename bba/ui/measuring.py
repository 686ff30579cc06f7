"""Pieces of the Latency page: what to measure, the run with its progress, and what came out."""

import os
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bba.backends import BACKENDS, NAMES, ONNX, TORCH
from bba.measure.latency import LatencySettings, usual_length
from bba.measure.report import Latency
from bba.model import Setting
from bba.ui import charts, layout, state
from bba.ui.backend_chart import latency_by_backend
from bba.ui.state import Choice
from bba.ui.wording import gain, plain, taken_on

QUARTERS = (0.25, 0.5, 0.75)
ALL = "all measured"


@dataclass(frozen=True)
class Measurement:
    """What is to be measured, and on what."""

    on: LatencySettings
    settings: list[Setting]


def asked(choice: Choice) -> Measurement:
    """Ask on what to measure and at which settings; dense and the ceiling are always measured."""
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
        config = choice.classifier.checkpoint.model.config
        lengths = [length for length in (16, 32, 64, 128) if length <= config.max_position_embeddings]
        lengths = lengths or [config.max_position_embeddings]
        length = st.segmented_control(
            "Tokens per text", lengths, default=min(usual_length(config), lengths[-1]), required=True,
            key=f"tokens_{lengths[-1]}", help="How long each text is.",
        )  # fmt: skip
    which, engines = st.columns([2, 1])
    with which:
        settings = _settings(choice)
    with engines:
        backends = (TORCH, *_other_backends())
    return Measurement(LatencySettings(batch=texts, length=length, threads=count, backends=backends), settings)


def _other_backends() -> list[str]:
    return st.segmented_control(
        "Also run in", [name for name in BACKENDS if name != TORCH], selection_mode="multi", key="also",
        bind="query-params", format_func=NAMES.__getitem__,
        help="The same pruned models in ONNX Runtime, in turn with torch: with their own weights, or with weights "
        "rounded to 8-bit integers (int8). Making the int8 graphs takes some seconds for each budget, once.",
    )  # fmt: skip


def _powers(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`."""
    return [2**power for power in range(most.bit_length())]


def _settings(choice: Choice) -> list[Setting]:
    which = st.segmented_control(
        "Budgets", ["a few", ALL], default="a few", required=True, key="which",
        help="Dense and the ceiling, which is the model with no attention at all, are always measured too.",
    )  # fmt: skip
    if which == ALL:
        return choice.settings
    few = [setting for setting in choice.settings if setting.budget in QUARTERS and setting.ffn_budget == 1]
    few += [Setting(stop, choice.setting.ffn_budget) for stop in choice.stops if stop in QUARTERS]
    return sorted({*few, choice.setting})


def measure_all() -> None:
    """Turn the page to all settings that a checkpoint serves; for the callback of a button."""
    st.session_state["which"] = ALL


def result(choice: Choice, asked: Measurement, target_ms: float | None) -> None:
    """Show what was measured with these settings, or else what is stored, and say which of them it is."""
    live = state.known_latency(choice, asked.on, asked.settings)
    latency = live or choice.report.latency
    when = "Measured live on this machine" if live else "Stored with the checkpoint when it was made"
    st.markdown(f"**{when}**, {latency.date}: {plain(taken_on(latency))}.")
    frame = _table(choice, latency)
    in_torch = frame[frame["backend"] == TORCH]
    left, right = st.columns(2, gap="large")
    with left:
        _frontier(choice, in_torch, target_ms if live else None)
    with right:
        _speedup(choice, in_torch)
    _lost(latency)
    _by_backend(choice, latency, frame)
    with st.container(key="latency_table"):
        st.dataframe(frame, hide_index=True, column_config=_columns())


def _table(choice: Choice, latency: Latency) -> pd.DataFrame:
    """Return all that was measured, backend by backend; accuracy is that of the model in torch, and stands there."""
    frames = []
    for backend in BACKENDS:
        measured = latency.on(backend)
        if measured.rows:
            frame = charts.latency_frame(measured, choice.report)
            frame.insert(1, "backend", backend)
            frame["verdict"] = [gain(latency, row) for row in measured.rows]
            if backend != TORCH:
                frame = frame.drop(columns=["accuracy", "low", "high", "unbeaten"])
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _by_backend(choice: Choice, latency: Latency, frame: pd.DataFrame) -> None:
    """Show the same models on every backend, if others than torch were measured."""
    others = [name for name in BACKENDS if name != TORCH and name in set(frame["backend"])]
    if not others:
        return
    st.subheader("The same models in ONNX Runtime", help="Measured in turn with torch, in the same run.")
    alt = f"Latency at every measured budget in torch and in {' and '.join(NAMES[name] for name in others)}"
    values = frame[["name", "backend", "budget", "ffn_budget", "median_ms", "iqr_ms", "speedup"]]
    layout.chart(latency_by_backend(values), values, "backends", alt)
    told = f"onnxruntime {latency.onnxruntime}. Speed-up counts from the dense model in torch. "
    if ONNX in others:
        told += "ONNX gives the same answers as torch, up to rounding. "
    if set(others) - {ONNX}:
        told += (
            "**int8 answers differ a little**, so the accuracies above do not hold for them: measure theirs with "
            f"`python -m bba evaluate {plain(str(choice.folder.name))} --backend onnx-int8`."
        )
    st.caption(told)


def _frontier(choice: Choice, frame: pd.DataFrame, target_ms: float | None) -> None:
    st.subheader(
        "Accuracy against latency",
        help="A point per setting, on the test texts. The line joins those that no other setting beats: none is at "
        "least as fast and as accurate, and better in one of the two.",
    )
    alt = "Accuracy against measured latency, one point per setting, the unbeaten ones joined"
    layout.chart(charts.frontier(frame, choice.setting, target_ms), frame, "accuracy_latency", alt)
    st.caption(
        "Bars: 95 % interval of the accuracy, interquartile range of the time. Settings whose bars overlap may trade "
        "places in another run."
    )


def _speedup(choice: Choice, frame: pd.DataFrame) -> None:
    st.subheader("Speed-up, measured and predicted")
    alt = "Measured speed-up and the one predicted by FLOPs against encoder cost, with the ceiling"
    layout.chart(charts.speedup_chart(frame, choice.setting), frame, "speedup", alt)
    st.caption(
        "What is missing to the prediction is work that FLOPs leave out: normalisation, softmax, look-ups and the "
        "calls themselves, which cost the same with fewer heads."
    )


def _lost(latency: Latency) -> None:
    none = [str(row.setting) for row in latency.rows if row.heads and gain(latency, row) == "no measurable gain"]
    if none:
        st.info(f"No measurable gain at budget {', '.join(none)}: the speed-up is within the noise of this run.")


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "name": "model",
        "backend": "runs on",
        "budget": number("budget asked", format="%.2f"),
        "ffn_budget": number("FFN budget asked", format="%.2f"),
        "heads": number("heads kept"),
        "blocks": number("blocks kept"),
        "encoder_cost": number("encoder cost", format="%.3f", help="Share of the dense encoder's FLOPs at 64 tokens."),
        "median_ms": number("median, ms", format="%.3f"),
        "iqr_ms": number("IQR, ms", format="%.3f", help="Interquartile range over the rounds."),
        "speedup": number("speed-up, times", format="%.2f"),
        "predicted_speedup": number("by FLOPs, times", format="%.2f"),
        "accuracy": number("accuracy", format="%.3f"),
        "low": number("95 % low", format="%.3f"),
        "high": number("95 % high", format="%.3f"),
        "unbeaten": st.column_config.CheckboxColumn("unbeaten", help="No other setting is as fast and as accurate."),
        "verdict": "verdict",
    }


def measure(choice: Choice, asked: Measurement, place: DeltaGenerator) -> None:
    """Measure with progress, then draw the page anew; any click, such as on Stop, ends it."""
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Warming up…")
        st.button("Stop", key="stop", icon=":material/stop:")

    def progress(done: float) -> None:
        bar.progress(done, f"Measuring… {done:.0%}")

    def waiting() -> None:
        bar.progress(0.0, "Another measurement is running on this machine; this one follows when it has ended…")

    state.live_latency(choice, asked.on, asked.settings, progress, waiting)
    st.rerun()
