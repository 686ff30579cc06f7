"""Where a visitor is in the lesson: kept while other pages are looked at, and in the page's address, to be linked."""

from dataclasses import dataclass, field

import streamlit as st

HIDDEN = "hidden"


@dataclass
class Place:
    """Where a visitor is, and what they have guessed."""

    step: int
    """From 1."""
    guesses: dict[int, str] = field(default_factory=dict)
    """The guess of each step."""
    hidden: bool = False
    """Whether answers are hidden, so that a class can talk first."""


def place(steps: int) -> Place:
    """Return where the visitor is; at first where the page's address says.

    Args:
        steps: how many there are.
    """
    if "lesson" not in st.session_state:
        asked = st.query_params.get("step", "")
        step = int(asked) if asked.isdecimal() and 1 <= int(asked) <= steps else 1
        guess = st.query_params.get("guess")
        guesses = {step: guess} if guess else {}
        st.session_state["lesson"] = Place(step, guesses, st.query_params.get("answers") == HIDDEN)
    here: Place = st.session_state["lesson"]
    return here


def share(here: Place) -> None:
    """Put step, guess and hidden answers into the page's address."""
    wanted = {
        "step": str(here.step),
        "guess": here.guesses.get(here.step),
        "answers": HIDDEN if here.hidden else None,
    }
    for name, value in wanted.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value
