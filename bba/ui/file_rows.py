"""Pieces of the Files page: a file of texts in, the same rows with their labels out."""

import tempfile
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from bba.batch import added_columns, classify_file
from bba.data.inspection import PREVIEW_ROWS, Glance, glance
from bba.data.tables import iter_batches
from bba.predict import AUTO, Asked
from bba.ui import uploads
from bba.ui.state import Choice
from bba.ui.wording import count, plain


def introduce() -> None:
    """Say what the page is for."""
    st.subheader("Classify a file")
    st.markdown(
        "Bring a file with a column of texts. The same rows come back in the same order, with a label, its probability "
        "and the budget that was paid."
    )


def ask() -> tuple[UploadedFile, str]:
    """Ask for a file and its column of texts; stop the page while there is none."""
    upload = uploads.ask("rows_file", "A file with a column of texts")
    if upload is None:
        st.caption("Every other column is kept as it is. Labels are not needed. Nothing stays on the server.")
        st.stop()
    seen = _glance(upload)
    st.markdown(f"**{plain(upload.name)}**: {uploads.described(seen.format)}, {len(seen.columns)} columns.")
    column = st.selectbox(
        "Column of texts", seen.columns, index=seen.columns.index(seen.text_column), format_func=plain,
        key=f"rows_text_{hash(tuple(seen.columns))}", help="What is to be classified.",
    )  # fmt: skip
    return upload, column


def _glance(upload: UploadedFile) -> Glance:
    with uploads.saved(upload) as path:
        return glance(path)


def asked(choice: Choice) -> Asked:
    """Return the dials' budget, or one for each text where the checkpoint has such and the visitor wants that."""
    fixed = Asked(*choice.setting)
    if choice.report.routing is None:
        return fixed
    own = st.toggle(
        "A budget of its own for each text", key="rows_auto",
        help="Each text is tried at a small budget first and goes on to a larger one while the model is not sure. "
        "It aims at the accuracy of the full model; the dials above are not used.",
    )  # fmt: skip
    return Asked(AUTO) if own else fixed


def classify(choice: Choice, upload: UploadedFile, column: str, asked: Asked) -> None:
    """Classify all rows when told to, and offer what came out."""
    key = (choice.folder, choice.stamp, asked, upload.file_id, column)
    if st.button("Classify all rows", type="primary", key="rows_start", icon=":material/play_arrow:"):
        st.session_state["rows_done"] = (key, *_classified(choice, upload, column, asked))
    done = st.session_state.get("rows_done")
    if done is None or done[0] != key:
        budget = "each text at a budget of its own" if asked.budget == AUTO else f"at budget {choice.setting}"
        st.caption(f"With {plain(choice.folder.name)}, {budget}.")
        return
    _, folder, rows, blank = done
    _offer(Path(folder.name) / "labelled.csv", upload.name, rows, blank)
    _show_first(Path(folder.name) / "labelled.csv", len(added_columns(choice.classifier, asked)))


def _classified(
    choice: Choice, upload: UploadedFile, column: str, asked: Asked
) -> "tuple[tempfile.TemporaryDirectory[str], int, int]":
    """Return the folder that holds `labelled.csv`, the rows in it, and how many have no text.

    The folder goes when the visitor's session forgets it.
    """
    folder = tempfile.TemporaryDirectory(prefix="bba-rows-", ignore_cleanup_errors=True)
    place = st.empty()
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Counting the rows…")
        st.button("Stop", key="rows_stop", icon=":material/stop:")

    def progress(done: float) -> None:  # A click, such as on Stop, ends the run here.
        bar.progress(done, f"Classifying… {done:.0%}")

    with uploads.saved(upload) as path:
        rows, blank = classify_file(
            choice.classifier, path, Path(folder.name) / "labelled.csv", asked, column, progress
        )
    place.empty()
    return folder, rows, blank


def _offer(path: Path, name: str, rows: int, blank: int) -> None:
    empty = f"; {count(blank)} of them have no text and got no label" if blank else ""
    st.success(f"{count(rows)} rows classified{empty}.", icon=":material/check:")
    st.download_button(
        "Download CSV", path.read_bytes, file_name=f"{Path(name).stem}-labelled.csv", mime="text/csv",
        key="rows_csv", icon=":material/download:", on_click="ignore",
    )  # fmt: skip


def _show_first(path: Path, added: int) -> None:
    """Show the first rows, the columns that were added, which are the last ones, in front."""
    first: pd.DataFrame = next(iter_batches(path, PREVIEW_ROWS))
    st.markdown("The first rows, with what was added in front:")
    uploads.preview(first, "rows_preview", list(first.columns[-added:]))
