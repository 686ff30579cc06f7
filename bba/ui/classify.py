"""Pieces of the Classify page: examples to pick from, the task in words, and where the label flips."""

from dataclasses import replace

import pandas as pd
import streamlit as st

from bba.backends import BACKENDS, INT8, NAMES, TORCH
from bba.ui import charts, layout, state
from bba.ui.state import Choice
from bba.ui.wording import plain

RULE = (
    "The rule of this task: people take things, one after the other; the word with a question mark asks for one thing, "
    "and the label is who took it **last**. `hat? tom:hat zoe:ball mia:hat` gives mia. Filler words mean nothing."
)


def task(choice: Choice) -> None:
    """Say what the checkpoint tells apart."""
    if choice.report.task == "synthetic":
        st.markdown(RULE)
    else:
        st.markdown(f"This model sorts texts into: {plain(', '.join(choice.report.labels))}.")


def on_backend(choice: Choice) -> Choice:
    """Ask what the model should run on; return the choice with a classifier that runs there."""
    backend = st.segmented_control(
        "Runs on", BACKENDS, default=TORCH, required=True, key="backend", bind="query-params",
        format_func=NAMES.__getitem__,
        help="torch is where the model was trained. ONNX Runtime runs the same pruned model as a graph, with its own "
        "weights or with weights rounded to 8-bit integers (int8), often faster: the Latency page measures it.",
    )  # fmt: skip
    on_it = replace(choice, classifier=choice.classifier.on(backend))
    if backend != TORCH:
        with st.spinner("Making the graph of this budget, once…"):
            on_it.classifier.running(*choice.setting)
    return on_it


def differs(choice: Choice, text: str) -> None:
    """Say how far an answer on another backend is from the model's own in torch."""
    backend = choice.classifier.backend
    if backend == TORCH or layout.is_blank(text):
        return
    here = choice.classifier.predict([text], *choice.setting)[0]
    own = choice.classifier.on(TORCH).predict([text], *choice.setting)[0]
    apart = max(abs(here.probabilities[label] - own.probabilities[label]) for label in own.probabilities)
    why = (
        "With weights rounded to 8 bits, answers differ a little from those in torch, and once in a while the label "
        "does, so the accuracy shown for this budget is not that of int8"
        if backend == INT8
        else "ONNX Runtime computes what torch computes, up to rounding"
    )
    also = "also" if own.label == here.label else "instead"
    st.caption(
        f"{why}. For this text torch {also} says **{plain(own.label)}**, with probability {own.probability:.4f}; the "
        f"probabilities of the two differ by up to {apart:.2g}."
    )


def across_budgets(choice: Choice, text: str) -> None:
    """Show the labels' probabilities at every measured budget and say where the label flips."""
    if layout.is_blank(text):
        return
    frame = state.answers(choice, text)
    st.subheader(
        f"Across all head budgets{charts.of_ffn(choice.setting)}",
        help="The same text, classified by the really pruned model of every measured head budget.",
    )
    st.markdown(_flips(frame))
    if choice.classifier.backend != TORCH:
        st.caption("These curves are the model's in torch.")
    alt = f"Probability of each label at every measured head budget, budget {choice.setting} marked"
    layout.chart(charts.flip_chart(frame, choice.setting.budget), frame, "flips", alt)


def _flips(frame: pd.DataFrame) -> str:
    """Return in a sentence which label holds over which budgets."""
    labels = charts.label_by_budget(frame)
    starts = [float(labels.index[0]), *(after for _, after in charts.flips(frame))]
    if len(starts) == 1:
        return f"The label is **{plain(labels.iloc[0])}** at every budget."
    parts = ", ".join(f"**{plain(labels[start])}** from {start:g}" for start in starts)
    return f"The label flips as the budget grows: {parts}."
