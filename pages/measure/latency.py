"""Measure, here and now, what each budget saves."""

import streamlit as st

from bba.ui import measuring, state

choice = state.chosen()
st.subheader("Latency on this machine", help="Only really pruned models are timed, in turn with the dense one.")
asked, budgets = measuring.settings(choice)
left, right = st.columns([1, 3], vertical_alignment="center")
pressed = left.button("Measure now", type="primary", key="measure", icon=":material/timer:", width="stretch")
place = right.empty()
measuring.result(choice, asked, budgets)
if pressed:
    measuring.measure(choice, asked, budgets, place)
