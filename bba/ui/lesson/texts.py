"""Texts of the teaching task that a visitor goes through, one after the other."""

import streamlit as st

from bba.data import synthetic

EXAMPLES = 8
"""Texts that a visitor can go through in a step."""


def example(seed: str, number: int = 0) -> tuple[str, str]:
    """Return a text of the teaching task and its true label."""
    text, label = list(synthetic.examples(number + 1, f"lesson/{seed}"))[number]
    return text, synthetic.PEOPLE[label]


def now_shown(seed: str) -> tuple[str, str]:
    """Return the text that a visitor is at in a step, and its true label."""
    return example(seed, st.session_state.get(_key(seed), 0))


def _key(seed: str) -> str:
    return f"example_{seed}"


def next_button(seed: str) -> None:
    """Show the button to the next text of a step."""
    following = (st.session_state.get(_key(seed), 0) + 1) % EXAMPLES
    st.button(
        "Another text", key=f"{_key(seed)}_next", icon=":material/refresh:", type="tertiary",
        on_click=lambda: st.session_state.update({_key(seed): following}),
    )  # fmt: skip


def shown(seed: str) -> str:
    """Show the text that a visitor is at, with its true label and the way to the next one; return it."""
    text, label = now_shown(seed)
    st.code(text, language=None, wrap_lines=True)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.caption(f"Right, by the rule of the task: **{label}**.", width="content")
        next_button(seed)
    return text
