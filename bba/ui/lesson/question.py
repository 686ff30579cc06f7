"""Predict, then see: a question, the visitor's guess, and the answer that the model gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from bba.ui.lesson.place import Place

STEP = 5
"""Between two guesses for a number out of 100."""


@dataclass(frozen=True)
class Answer:
    """What came out."""

    right: str
    """The option that was right."""
    value: str
    """What is told: that option, or the number that it is closest to."""
    why: str
    """What it says, in Markdown."""


@dataclass(frozen=True)
class Question:
    """Something to guess before it is computed."""

    text: str
    """In Markdown."""
    options: Sequence[str]
    answer: Callable[[], Answer]
    """Computes what is asked, with the real model."""
    slider: bool = False
    """Whether the options lie on a scale, to be guessed on a slider."""


def share_of_texts(text: str, answer: Callable[[], tuple[float, str]]) -> Question:
    """Return a question for a share of the texts, which is guessed as a number out of 100.

    Args:
        text: in Markdown.
        answer: computes the share, and says what it means.
    """

    def out_of_hundred() -> Answer:
        share, why = answer()
        return Answer(str(STEP * round(100 * share / STEP)), f"{100 * share:.4g} of 100", why)

    return Question(text, [str(number) for number in range(0, 101, STEP)], out_of_hundred, slider=True)


def ask(question: Question, here: Place) -> None:
    """Show a question with its options, and record the guess that is handed in."""
    recorded = here.guesses.get(here.step)
    if recorded not in question.options:  # From an address that somebody wrote, or from before a new training.
        here.guesses.pop(here.step, None)
    st.markdown(f"**Guess first.** {question.text}")
    key = f"guess_{here.step}"

    def hand_in() -> None:  # Before the page is drawn anew, so that the button no longer stands out on it.
        if st.session_state[key] is not None:
            here.guesses[here.step] = st.session_state[key]

    with st.form(f"question_{here.step}", border=False):
        _input(question, here, key)
        handed_in = st.form_submit_button(
            "That is my guess", icon=":material/how_to_vote:", key="hand_in", on_click=hand_in,
            type="secondary" if here.step in here.guesses else "primary",
        )  # fmt: skip
        if handed_in and here.step not in here.guesses:
            st.warning("Choose one of the options first.", icon=":material/touch_app:")


def _input(question: Question, here: Place, key: str) -> None:
    """Show the options, on a scale or one under the other; what is picked is kept in the session under `key`."""
    recorded = here.guesses.get(here.step)
    if question.slider:
        middle = question.options[len(question.options) // 2]
        st.select_slider("Your guess", question.options, value=recorded or middle, key=key)
        return
    index = question.options.index(recorded) if recorded else None
    st.radio("Your guess", question.options, index=index, key=key)


def may_see(here: Place) -> bool:
    """Return whether the visitor may see the answer: they have guessed, and answers are not hidden."""
    guess = here.guesses.get(here.step)
    if guess is None:
        return False
    if here.hidden:
        st.info(f"Your guess: **{guess}**. The answers are hidden for now.", icon=":material/visibility_off:")
        return False
    return True


def show_answer(question: Question, here: Place) -> None:
    """Compute the answer and show it beside the guess."""
    guess, answer = here.guesses[here.step], question.answer()
    if guess == answer.right:
        st.success(f"**{answer.value}**: you guessed right.", icon=":material/check:")
    else:
        st.info(f"You guessed **{guess}**. It is **{answer.value}**.", icon=":material/lightbulb:")
    st.markdown(answer.why)
