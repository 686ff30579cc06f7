"""Measure, here and now, what each budget saves, and find the setting for a latency target."""

import streamlit as st

from bba.ui import layout, measuring, target

choice = layout.chosen()
st.subheader("Latency on this machine", help="Only really pruned models are timed, in turn with the dense one.")
asked = measuring.asked(choice)
left, right = st.columns([1, 3], vertical_alignment="center")
pressed = left.button("Measure now", type="primary", key="measure", icon=":material/timer:", width="stretch")
place = right.empty()
target_ms, find = target.ask()
if target_ms is not None:
    target.result(choice, asked, target_ms)
measuring.result(choice, asked, target_ms)
if pressed or find:
    measuring.measure(choice, asked, place)
