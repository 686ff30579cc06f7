"""Visiting the app's pages without a browser: what the tests of the pages share."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

APP = str(Path(__file__).parents[1] / "app.py")
KINDS = ("markdown", "caption", "warning", "info", "error", "success")


def opened(page, **params):
    """Return the app at a page after its first run, with these parameters in the address."""
    at = AppTest.from_file(APP, default_timeout=120).switch_page(page)
    for name, value in params.items():
        at.query_params[name] = value
    return ran(at.run())


def ran(at):
    """Return the app after a run, which must have raised nothing."""
    assert not at.exception, at.exception[0].message
    return at


def words(at):
    """Return all that a page says, kind by kind."""
    return " ".join(element.value for kind in KINDS for element in at.get(kind))
