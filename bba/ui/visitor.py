"""Who a visitor is: a key that the browser keeps, so that trainings are found again, and by nobody else.

There are no accounts. The key is a cookie, set only for those who have started a training.
"""

import re
import secrets

import streamlit as st

COOKIE = "bba_visitor"
KEY = re.compile(r"[0-9a-f]{32}")
SECONDS_KEPT = 180 * 24 * 3600


def key() -> str:
    """Return the key that this browser brings, or one for this visit."""
    if "visitor" not in st.session_state:
        brought = st.context.cookies.get(COOKIE, "")
        st.session_state["visitor"] = brought if KEY.fullmatch(brought) else secrets.token_hex(16)
    return st.session_state["visitor"]


def keep() -> None:
    """Let the browser keep the key, so that it is known when the page is opened again."""
    cookie = f"{COOKIE}={key()}; path=/; max-age={SECONDS_KEPT}; SameSite=Lax"
    st.html(f"<script>document.cookie = '{cookie}'</script>", unsafe_allow_javascript=True)
