"""Type or paste a text: its label at the budget, and at every other one, and what a head looks at."""

import streamlit as st

from bba.ui import attending, classify, layout

choice = layout.chosen()
left, right = st.columns([1, 1], gap="large")
with left:
    st.subheader("Classify a text")
    classify.task(choice)
    text = layout.text_box(choice, "classify")
    layout.example_picker(choice, "classify")
with right:
    st.subheader("Answer at this budget")
    choice = classify.on_backend(choice)
    layout.answer(choice, text)
    classify.differs(choice, text)
attending.attention(choice, text)
classify.across_budgets(choice, text)
