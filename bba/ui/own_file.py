"""Your data, first part: a file comes in, and the visitor sees what is in it and what is wrong with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from bba.data.inspection import Glance, Inspection, glance, inspect
from bba.data.tables import read_table
from bba.ui import charts, layout, uploads
from bba.ui.own_words import SPLITS
from bba.ui.wording import count, percent, plain

Made = TypeVar("Made")
MAX_LABELS = 20
"""Labels drawn in the chart of counts."""


@dataclass(frozen=True)
class Checked:
    """A file that can be trained on."""

    upload: UploadedFile
    columns: tuple[str, str]
    """Text column and label column."""
    found: Inspection

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells these examples from others."""
        return (self.upload.file_id, *self.columns)

    def examples(self) -> pd.DataFrame:
        """Return the rows that can be used, as columns `text` and `label`."""
        with uploads.saved(self.upload) as path:
            return read_table(path, *self.columns).frame


def ask() -> Checked:
    """Ask for a file, show what is in it, and return it; stop the page while there is none to train on."""
    upload = uploads.ask("own_file", "A file with a column of texts and a column of labels")
    if upload is None:
        _example()
        st.stop()
    seen = _once("own_glance", (upload.file_id,), lambda: _glance(upload))
    st.markdown(f"**{plain(upload.name)}**: {uploads.described(seen.format)}, {len(seen.columns)} columns.")
    columns = _columns(seen)
    found = _once("own_inspection", (upload.file_id, *columns), lambda: _inspect(upload, columns))
    _show(seen, found, columns)
    if found.error:
        st.error(plain(found.error), icon=":material/error:")
        st.stop()
    return Checked(upload, columns, found)


def _once(slot: str, key: tuple[str, ...], make: Callable[[], Made]) -> Made:
    """Return what was made for this key; a visitor keeps the newest one only."""
    stored = st.session_state.get(slot)
    if stored is None or stored[0] != key:
        stored = st.session_state[slot] = (key, make())
    return stored[1]


def _example() -> None:
    st.caption("For example:")
    st.code("text,label\nThe room was clean and quiet,good\nNobody answered the phone,bad", language=None)
    st.caption(
        "Some 50 rows for each label are a beginning, 500 are better. Quotes, semicolons, tabs and other encodings are "
        "recognised."
    )


def _glance(upload: UploadedFile) -> Glance:
    with st.spinner("Looking at the file…"), uploads.saved(upload) as path:
        return glance(path)


def _inspect(upload: UploadedFile, columns: tuple[str, str]) -> Inspection:
    with st.spinner("Reading every row…"), uploads.saved(upload) as path:
        found = inspect(path, *columns)
        problems = tuple(uploads.in_app(problem, path, upload.name) for problem in found.problems)
        error = found.error and uploads.in_app(found.error, path, upload.name)
        return Inspection(found.rows, found.counts, problems, found.splits, error)


def _columns(seen: Glance) -> tuple[str, str]:
    """Ask which columns hold texts and labels, beginning with the guess."""
    left, right = st.columns(2)
    with left:
        text = st.selectbox(
            "Column of texts", seen.columns, index=seen.columns.index(seen.text_column), format_func=plain,
            key=f"own_text_{hash(tuple(seen.columns))}", help="What is to be classified.",
        )  # fmt: skip
    others = [column for column in seen.columns if column != text]
    if not others:
        st.error(
            "The file has a single column, but training needs two: one of texts and one of labels. Add the labels.",
            icon=":material/error:",
        )
        st.stop()
    with right:
        label = st.selectbox(
            "Column of labels", others,
            index=others.index(seen.label_column) if seen.label_column in others else 0, format_func=plain,
            key=f"own_label_{hash((*seen.columns, text))}", help="What the model is to answer.",
        )  # fmt: skip
    return text, label


def _show(seen: Glance, found: Inspection, columns: tuple[str, str]) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**{count(found.rows)} rows** with a text and a label, **{len(found.counts)} labels**:")
        frame = pd.DataFrame({"label": found.counts.keys(), "rows": found.counts.values()})
        drawn = counts_chart(dict(list(found.counts.items())[:MAX_LABELS]))
        layout.chart(drawn, frame, "own_labels", "Rows of each label")
        if len(found.counts) > MAX_LABELS:
            st.caption(f"The {MAX_LABELS} most frequent labels; all are in the CSV.")
    with right:
        st.markdown("The first rows, as they were read:")
        uploads.preview(seen.preview, "own_preview", columns[::-1])
    for problem in found.problems:
        st.warning(plain(problem), icon=":material/warning:")
    if not found.problems and not found.error:
        st.success("Nothing is wrong with this file.", icon=":material/check:")
    if found.splits:
        shares = ", ".join(f"{count(found.splits[name])} to {use}" for name, use in SPLITS.items())
        largest = percent(max(found.counts.values()) / found.rows)
        st.caption(f"Of the rows, {shares}. Always giving the most frequent label would be right for {largest}.")


def counts_chart(counts: dict[str, int]) -> go.Figure:
    """Draw how many rows each label has."""
    figure = charts.blank(28 * len(counts) + 70, bargap=0.25)
    names = [charts.literal(charts.shorten(label)) for label in counts]
    figure.add_bar(
        x=list(counts.values()), y=list(range(len(counts))), orientation="h", marker_color=charts.ACCENT,
        text=[count(rows) for rows in counts.values()], textposition="auto", textangle=0,
        customdata=[charts.literal(label) for label in counts], hovertemplate="%{customdata}: %{x} rows<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="rows", rangemode="tozero")
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, autorange="reversed")
    figure.update_layout(margin_l=20 + 7 * max(len(charts.shorten(label)) for label in counts))
    return figure
