"""Shared pieces of the pages: the frame, messages, a chart with its data, the text box, an answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from bba.errors import BBAError
from bba.predict import Prediction
from bba.ui import charts, dials, state
from bba.ui.examples import examples, synthetic_answer
from bba.ui.state import Choice
from bba.ui.wording import kept, notices, origin, plain

INTRODUCTION = (
    "This classifier reads a text with *attention heads*, the parts that let words look at each other. "
    "Move the slider to pay for fewer of them."
)
BUTTONS = """<style>
button[data-testid^="stBaseButton-primary"] { background-color: #1f6db3; border-color: #1f6db3; }
</style>"""
"""White on them can be read; on the dark theme's accent, which must be readable as small letters too, it cannot."""
MAX_SHARED_LETTERS = 1_000
"""A longer text is not put into the page's address."""


@contextmanager
def errors() -> Iterator[None]:
    """Show an error that the visitor can mend as its one sentence."""
    try:
        yield
    except BBAError as error:
        st.error(plain(str(error)), icon=":material/error:")


def frame(with_dials: bool) -> None:
    """Draw what pages share: the checkpoint in the sidebar, the dials above the page; stop if there is none."""
    root = state.checkpoints_root()
    problems = {folder: state.problem(folder, state.stamp_of(folder)) for folder in state.candidate_folders(root)}
    usable = [folder.name for folder, problem in problems.items() if problem is None]
    with st.sidebar:
        if usable:
            _checkpoint_picker(root, usable)
        _unusable({folder.name: problem for folder, problem in problems.items() if problem})
    if not usable:
        _no_checkpoint(root)
    choice = state.choose(root / st.session_state["checkpoint"])
    if with_dials:
        st.markdown(INTRODUCTION)
        st.session_state["setting"] = dials.setting(choice)
    else:
        keep("budget", "ffn")


def keep(*keys: str) -> None:
    """Let a page keep the choices of widgets that it does not draw: Streamlit would forget them."""
    for key in keys:
        if key in st.session_state:
            st.session_state[key] = st.session_state[key]


def chosen() -> Choice:
    """Return what the sidebar's checkpoint and the dials choose; for a page, which is drawn in the frame."""
    choice = state.choose(state.checkpoints_root() / st.session_state["checkpoint"])
    return choice.at(st.session_state.get("setting", choice.setting))


def _checkpoint_picker(root: Path, names: Sequence[str]) -> None:
    name = st.selectbox(
        "Checkpoint",
        names,
        index=names.index(state.FAVOURITE) if state.FAVOURITE in names else 0,
        key="checkpoint",
        bind="query-params",
        help="A trained model in its folder. Every one of them serves all its budgets with the same weights.",
    )
    choice = state.choose(root / name)
    st.caption(plain(origin(choice.report)))
    if not choice.classifier.has_ffn_dial:
        st.caption("One dial: this checkpoint was trained for head budgets, without an FFN budget.")


def _unusable(problems: dict[str, str]) -> None:
    if problems:
        with st.expander(f"{len(problems)} unusable", icon=":material/warning:", key="unusable"):
            for name, problem in problems.items():
                st.markdown(f"**{plain(name)}**: {plain(problem)}")


def _no_checkpoint(root: Path) -> None:
    st.title("No checkpoint yet")
    st.markdown(f"This app shows trained models, and there is none in {plain(str(root))}. Make one in a few minutes:")
    st.code(f"python -m bba train --task synthetic --out {root / 'synthetic'}", language="bash")
    st.markdown("Then reload this page. To look elsewhere, set `BBA_CHECKPOINTS` to a folder of checkpoints.")
    st.stop()


def chart(figure: go.Figure, frame: pd.DataFrame, key: str, alt: str) -> None:
    """Show a figure that can be saved as a picture, with its data as CSV under it.

    Args:
        figure: what to draw.
        frame: the values drawn.
        key: name of the chart, also of its files and its CSS class.
        alt: what the figure shows, for who cannot see it.
    """
    config = {
        "displaylogo": False,
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": key, "scale": 2},
    }
    with st.container(key=key, gap=None, horizontal_alignment="right"):
        st.plotly_chart(figure, key=f"{key}_chart", config=config, alt=alt)
        st.download_button(
            "CSV",
            lambda: frame.to_csv(index=False),
            file_name=f"{key}.csv",
            mime="text/csv",
            key=f"{key}_csv",
            type="tertiary",
            icon=":material/download:",
            on_click="ignore",
            help="Download the values of this chart.",
        )


def text_box(choice: Choice, page: str) -> str:
    """Show the box with the text that the pages share; return the text.

    Each page has a box of its own, because Streamlit forgets a box that is not on the page.
    """
    key, first = f"text_{page}", next(iter(examples(choice.report.task)), "")
    _settle_text(choice.report.task, first)
    if key not in st.session_state:
        st.session_state[key] = st.session_state["text"]
    text = st.text_area(
        "Text to classify",
        key=key,
        height=110,
        placeholder="Type or paste a text",
        help="Press Ctrl+Enter or leave the box to classify.",
    )
    st.session_state["text"] = text
    _share(text, first)
    return text


def set_text(text: str, page: str) -> None:
    """Put a text into a page's box."""
    st.session_state[f"text_{page}"] = st.session_state["text"] = text


def example_picker(choice: Choice, page: str) -> None:
    """Offer texts to try; picking one puts it into the page's text box."""
    texts, key = examples(choice.report.task), f"example_{page}"

    def take() -> None:
        if st.session_state[key]:
            set_text(st.session_state[key], page)

    if texts:
        st.selectbox("Or pick an example", texts, index=None, key=key, on_change=take, placeholder="Examples")


def _settle_text(task: str, first: str) -> None:
    """Start with the address's text or an example, and replace another task's example by one of this task."""
    before = st.session_state.setdefault("text_task", task)
    if "text" not in st.session_state:
        st.session_state["text"] = st.query_params.get("text", first)
    elif before != task and st.session_state["text"] in ["", *examples(before)]:
        for page in ("budget", "classify", "inputs"):
            set_text(first, page)
    st.session_state["text_task"] = task


def _share(text: str, default: str) -> None:
    """Keep the text in the page's address, so that a link shows it; a long one is left out."""
    wanted = text if text != default and 0 < len(text) <= MAX_SHARED_LETTERS else None
    if st.query_params.get("text") == wanted:
        return
    if wanted is None:
        del st.query_params["text"]
    else:
        st.query_params["text"] = wanted


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing to classify."""
    return not text.replace("\0", "").strip()


def answer(choice: Choice, text: str, key: str = "prediction") -> None:
    """Classify a text at the setting and show the label, its probabilities, and what the reader should know.

    Args:
        choice: checkpoint and setting.
        text: what to classify.
        key: name of this answer where a page shows two.
    """
    with st.container(key=key):
        if is_blank(text):
            st.info("Nothing to classify yet: type or paste a text above.", icon=":material/edit:")
            return
        prediction = choice.classifier.predict([text], *choice.setting)[0]
        st.markdown(
            f"### {plain(prediction.label)}\n"
            f"probability {prediction.probability:.2f} at budget {choice.setting} ({kept(choice.row)})"
        )
        _explain(choice, text, prediction)
        data = pd.DataFrame(
            {"label": prediction.probabilities.keys(), "probability": prediction.probabilities.values()}
        )
        alt = f"Probability of each label at budget {choice.setting}"
        chart(charts.probability_bars(prediction.probabilities), data, f"{key}_bars", alt)


def _explain(choice: Choice, text: str, prediction: Prediction) -> None:
    for notice in notices(text, prediction):
        st.warning(plain(notice), icon=":material/info:")
    if choice.report.task == "synthetic":
        truth = synthetic_answer(text)
        if truth is None:
            st.caption("No true label: the text does not follow the rule of this task.")
        else:
            st.caption(f"True label, by the rule: **{truth}**, so the answer is {_verdict(truth == prediction.label)}.")


def _verdict(right: bool) -> str:
    return "right" if right else "wrong"
