"""For a server's first visitor only: until `st.navigation` is called, Streamlit looks for this address's page here.

It gets the whole app, which finds the real page in its sub-folder; without this file it would say "Page not found".
"""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "app.py"))
