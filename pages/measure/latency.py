"""Measure, here and now, what each budget saves."""

import streamlit as st

from bba.ui import measuring, state

choice = state.chosen()
st.subheader("Latency on this machine", help="Only really pruned models are timed, in turn with the dense one.")
asked, budgets = measuring.settings(choice)
pressed = st.button("Measure now", type="primary", key="measure", icon=":material/timer:")
place = st.empty()
measuring.result(choice, asked, budgets)
if pressed:
    measuring.measure(choice, asked, budgets, place)
