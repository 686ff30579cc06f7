"""The app: `streamlit run app.py`.

The pages lie in sub-folders on purpose: Streamlit's older page discovery reads `pages/*.py`, and a first visitor who
came straight to such a page would get it without this frame. The files that do lie there lead that visitor back here.
"""

import streamlit as st

from bba.ui import layout

# Drawn here, not named: Streamlit fetches named icons of the tab from the network.
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="#2a7bc4">
<rect x="1" y="7" width="14" height="2" rx="1" fill="#9aa1ab"/><rect x="1" y="7" width="7" height="2" rx="1"/>
<circle cx="8" cy="8" r="4"/>
</svg>"""

# Addresses of pages whose dial is another one, and of those that bring their own checkpoint, or need none.
OWN_DIAL = {"inputs"}
OWN_CHECKPOINT = {"lesson", "your_data"}

st.set_page_config(page_title="Budgeted Attention", page_icon=ICON, layout="wide")
page = st.navigation(
    {
        "Explore": [
            st.Page("pages/explore/budget.py", title="Budget", icon=":material/tune:", default=True),
            st.Page("pages/explore/classify.py", title="Classify", icon=":material/label:"),
            st.Page("pages/explore/inputs.py", title="Inputs", icon=":material/alt_route:"),
            st.Page("pages/explore/files.py", title="Files", icon=":material/table:"),
        ],
        "Measure": [
            st.Page("pages/measure/latency.py", title="Latency", icon=":material/timer:"),
            st.Page("pages/measure/methods.py", title="Methods", icon=":material/scatter_plot:"),
        ],
        "Learn": [
            st.Page("pages/learn/lesson.py", title="Lesson", icon=":material/school:"),
        ],
        "Build": [
            st.Page("pages/build/your_data.py", title="Your data", icon=":material/upload_file:"),
        ],
    }
)
st.html(layout.BUTTONS)
with layout.errors():
    if page.url_path in OWN_CHECKPOINT:
        layout.keep("checkpoint", "budget", "ffn")
    else:
        layout.frame(with_dials=page.url_path not in OWN_DIAL)
    page.run()
