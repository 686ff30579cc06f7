"""Files that visitors bring: on disk for as long as they are read, and what is wrong with them in the app's words."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from bba.data.tables import FileFormat
from bba.errors import DataError

TYPES = ["csv", "tsv", "txt", "jsonl", "ndjson", "json", "parquet"]
ENCODINGS = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252"}
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MAX_CELL = 300
"""Letters of a cell that a preview shows."""


def ask(key: str, label: str = "Your file") -> UploadedFile | None:
    """Show the place to drop a file and return the file, or None while there is none."""
    return st.file_uploader(label, type=TYPES, key=key, help="CSV, TSV, JSONL or Parquet, up to 200 MB.")


@contextmanager
def saved(upload: UploadedFile) -> Iterator[Path]:
    """Give an uploaded file as one on disk, which is removed afterwards; errors name it as the visitor does."""
    with tempfile.TemporaryDirectory(prefix="bba-upload-") as folder:
        path = Path(folder) / f"upload{Path(upload.name).suffix.lower()}"
        upload.seek(0)
        with path.open("wb") as file:
            shutil.copyfileobj(upload, file)
        try:
            yield path
        except DataError as error:
            raise DataError(in_app(str(error), path, upload.name)) from error


def in_app(sentence: str, path: Path, name: str) -> str:
    """Return a sentence about a file as it reads in the app: the visitor's name of the file, and no flags."""
    named = sentence.replace(str(path), name).replace(path.name, name)
    return re.sub(r" with --(text|label)-column", " above", named)


def described(form: FileFormat) -> str:
    """Return in words how a file is written."""
    kind = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet"}[form.kind]
    parts = ["TSV" if form.delimiter == "\t" else kind]
    if form.encoding:
        parts.append(ENCODINGS[form.encoding])
    if form.kind == "csv":
        split = f"columns separated by {DELIMITERS[form.delimiter]}" if form.delimiter else "a single column"
        parts.append(split)
    return ", ".join(parts)


def preview(rows: pd.DataFrame, key: str, first: Sequence[str] = ()) -> None:
    """Show the first rows of a table as they are, long cells cut, with some columns before the others."""
    rows = rows[[*first, *(column for column in rows.columns if column not in first)]]
    short = rows.apply(lambda column: column.str.slice(0, MAX_CELL))
    with st.container(key=key):
        st.dataframe(short.rename_axis("row"), height=240)
