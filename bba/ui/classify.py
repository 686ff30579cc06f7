"""Pieces of the Classify page: examples to pick from, the task in words, and where the label flips."""

import pandas as pd
import streamlit as st

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
