"""The app: `streamlit run app.py`.

The pages lie in sub-folders on purpose: Streamlit's older page discovery reads `pages/*.py`, and a first visitor who
came straight to such a page would get it without this frame.
"""

import streamlit as st

from bba.ui import layout

st.set_page_config(page_title="Budgeted Attention", page_icon=":material/tune:", layout="wide")
page = st.navigation(
    {
        "Explore": [
            st.Page("pages/explore/budget.py", title="Budget", icon=":material/tune:", default=True),
            st.Page("pages/explore/classify.py", title="Classify", icon=":material/label:"),
        ],
        "Measure": [st.Page("pages/measure/latency.py", title="Latency", icon=":material/timer:")],
    }
)
with layout.errors():
    layout.frame()
    page.run()
