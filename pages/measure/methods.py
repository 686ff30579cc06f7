"""All methods of a comparison in one picture: how accurate each is, and for what."""

import streamlit as st

from bba.ui import layout, methods

st.subheader("Methods compared", help="One budgeted checkpoint against everything that it would replace.")
view = methods.ask(methods.usable())
methods.verdict(view)
methods.chart(view, layout.chosen().setting)
methods.circumstances(view)
methods.table(view)
methods.training(view)
