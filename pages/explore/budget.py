"""The first screen: what a budget opens and closes, and what it costs and gives."""

import streamlit as st

from bba.ui import budget, compare, layout

choice = layout.chosen()
other = compare.second(choice)
if other is not None:
    compare.page(choice, other)
else:
    slots = budget.figures(choice, budget.known([choice]))
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.subheader("Which heads are open")
        budget.unit_map(choice)
    with right:
        st.subheader("Try it")
        layout.answer(choice, layout.text_box(choice, "budget"))
    budget.accuracy_line(choice)
    budget.live_figures([choice], [slots])
