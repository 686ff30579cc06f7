"""Your data: the page's frame, and whether training is offered at all."""

import os

import streamlit as st

TRAINING = "BBA_TRAINING"
"""Environment variable; `off` keeps visitors of a public server from training."""


def introduce() -> None:
    """Say what the page is for."""
    st.subheader("Your data")
    st.markdown(
        "Bring a file of texts with labels, such as reviews and whether they are good, and get a classifier of your "
        "own, with the same slider."
    )


def check_allowed() -> None:
    """Stop the page, and say so, where the server's owner has switched training off."""
    if os.environ.get(TRAINING, "").strip().casefold() == "off":
        st.info(
            "Training is switched off on this server: install the app on your own computer to train there, or ask "
            "whoever runs the server.",
            icon=":material/block:",
        )
        st.stop()
