"""The page of the lesson: the steps in their order, and the way from one to the next."""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from bba.errors import CheckpointError
from bba.ui import state
from bba.ui.lesson import costs, heads
from bba.ui.lesson.facts import Facts
from bba.ui.lesson.place import Place, place, share
from bba.ui.lesson.question import Question, ask, may_see, show_answer
from bba.ui.wording import plain

TEACHING = "synthetic"
"""The checkpoint of the lesson, whatever is chosen elsewhere."""


@dataclass(frozen=True)
class Step:
    """One idea."""

    title: str
    words: Callable[[Facts], str]
    """A sentence or two, in Markdown."""
    picture: Callable[[Facts, bool], None]
    """Draws the picture; told whether the answer may be seen."""
    question: Callable[[Facts], Question | None]


STEPS = (
    Step("What a head does", heads.head_words, heads.head_picture, heads.head_question),
    Step("All heads on", heads.all_words, heads.all_picture, heads.all_question),
    Step("A dial", heads.dial_words, heads.dial_picture, heads.dial_question),
    Step("Which heads close first", heads.order_words, heads.order_picture, heads.order_question),
    Step("Why accuracy falls off a cliff", costs.cliff_words, costs.cliff_picture, costs.cliff_question),
    Step("Masks are not speed, pruning is", costs.speed_words, costs.speed_picture, costs.speed_question),
    Step("One model, many budgets", costs.many_words, costs.many_picture, costs.many_question),
    Step("Easy texts need few heads", costs.each_words, costs.each_picture, costs.each_question),
)


def lesson() -> None:
    """Draw the step that the visitor is at."""
    facts = Facts(_checkpoint())
    here = place(len(STEPS))
    step = STEPS[here.step - 1]
    _top(here)
    st.header(step.title)
    st.markdown(step.words(facts))
    left, right = st.columns([3, 2], gap="large")
    question = step.question(facts)
    with right:  # Called first: the picture depends on the guess.
        seen = question is not None and _asked(question, here)
    with left:
        step.picture(facts, seen)
    _ways(here, urge=question is None or here.step in here.guesses)
    share(here)


def _checkpoint() -> state.Choice:
    """Return the teaching checkpoint, or say how to make it and stop."""
    folder = state.checkpoints_root() / TEACHING
    try:
        if folder.is_dir():
            return state.choose(folder)
        problem = f"The lesson needs the checkpoint {TEACHING}, and there is none in {folder.parent}."
    except CheckpointError as error:
        problem = str(error)
    st.title("The lesson needs its model")
    st.markdown(f"{plain(problem)} Make it in a few minutes:")
    st.code(f"python -m bba train --task synthetic --out {folder}", language="bash")
    st.markdown("Then reload this page.")
    st.stop()


def _top(here: Place) -> None:
    """Show how far the visitor is, and the teacher's switch."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(here.step / len(STEPS), text=f"Step {here.step} of {len(STEPS)}")
        here.hidden = st.toggle(
            "Hide answers", value=here.hidden, key="hide_answers",
            help="For a class that talks first: guesses are kept, answers wait. The page's address keeps the switch.",
        )  # fmt: skip


def _asked(question: Question, here: Place) -> bool:
    """Show the question, and the answer if it may be seen; return whether it may."""
    ask(question, here)
    seen = may_see(here)
    if seen:
        show_answer(question, here)
    return seen


def _ways(here: Place, urge: bool) -> None:
    """Show the buttons to the steps before and after; the latter stands out where it is what comes next."""

    def go(step: int) -> None:
        here.step = step

    with st.container(horizontal=True, key="ways"):
        st.button(
            "Back",
            key="back",
            icon=":material/arrow_back:",
            disabled=here.step == 1,
            on_click=go,
            args=(here.step - 1,),
        )
        st.button(
            "Next", key="next", icon=":material/arrow_forward:", icon_position="right",
            type="primary" if urge else "secondary", disabled=here.step == len(STEPS), on_click=go,
            args=(here.step + 1,),
        )  # fmt: skip
