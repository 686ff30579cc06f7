"""Files of examples: CSV, TSV, JSONL or Parquet in, a frame of strings out, and one clear sentence when that fails.

Every format is read in batches of rows, so that a whole file and a stream are the same thing read differently. Each
cell is text, exactly as written: "NA", "null" and "007" stay what they are. Rows are counted from 1, the header apart.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bba.errors import DataError

TEXT_NAMES = (
    *("text", "sentence", "content", "review", "body", "message", "comment", "description", "document", "tweet"),
    *("utterance", "question", "title", "headline"),
)
"""Column names taken for the text, the first that is there."""
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "topic", "intent", "y")
"""Column names taken for the label, the first that is there."""

_DELIMITERS = (",", ";", "\t", "|")
_NO_DELIMITER = "\x1f"  # A character that no text holds: the file has one column, and its commas belong to the texts.
_HEAD_BYTES = 65_536
_MAX_NUL_SHARE = 0.2  # A stray NUL is dirt, many are a binary file or UTF-16 without its mark.
_BATCH_ROWS = 8192
_SHOWN = 5


@dataclass(frozen=True)
class Table:
    """Examples read from a file, and what had to be left out."""

    frame: pd.DataFrame
    """String columns `text` and, where there are labels, `label`; the index is the row's number in the file, from 1."""
    problems: tuple[str, ...]
    """A sentence for each kind of row that was left out; empty when every row is there."""


@dataclass(frozen=True)
class FileFormat:
    """How a file is written."""

    kind: str
    """csv, json or parquet; csv stands for any delimiter."""
    encoding: str | None = None
    """The text's encoding as Python names it; None for Parquet."""
    delimiter: str | None = None
    """What stands between the values of a CSV file; None for other kinds and for a file of one column."""


def file_format(path: Path) -> FileFormat:
    """Return how a file is written.

    Raises:
        DataError: it is not there, is empty, or is no file of examples.
    """
    kind = _kind(path)
    if kind == "parquet":
        return FileFormat(kind)
    encoding = _encoding(path)
    return FileFormat(kind, encoding, _delimiter(path, encoding) if kind == "csv" else None)


def read_table(
    path: Path, text_column: str | None = None, label_column: str | None = None, *, need_labels: bool = True
) -> Table:
    """Return the examples of a file; rows without a text, or without a needed label, are left out and reported.

    Labels are names: spaces around them go, and a whole number written "1.0" becomes "1".

    Args:
        path: a CSV, TSV, JSONL or Parquet file.
        text_column: column of the texts; by default the one with a usual name such as "text" or "review".
        label_column: column of the labels; by default the one with a usual name such as "label" or "category".
        need_labels: whether a file without labels is a mistake.

    Raises:
        DataError: the file cannot be read, lacks a column, or holds no usable row.
    """
    whole = pd.concat(list(iter_batches(path, _BATCH_ROWS)))
    text, label = _resolve(path, list(whole.columns), text_column, label_column, need_labels)
    frame = pd.DataFrame({"text": whole[text].str.replace("\0", "", regex=False)})
    if label is not None:
        frame["label"] = whole[label].str.strip().str.replace(r"^([+-]?\d+)\.0+$", r"\1", regex=True)
    frame.index.name = "row"
    return _drop_empty(path, frame, ["text", "label"] if need_labels else ["text"])


def find_text_column(path: Path, text_column: str | None = None) -> str:
    """Return the name of the file's text column as the file writes it, reading no more than the first rows.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    first = next(iter_batches(path, 1))
    return _resolve(path, list(first.columns), text_column, None, need_labels=False)[0]


def iter_batches(path: Path, rows: int = 1024) -> Iterator[pd.DataFrame]:
    """Yield the file's rows in order, at most `rows` at a time and all columns as strings, in constant memory.

    Nothing is left out: a row without text is a row. The index is the row's number in the file, from 1.

    Raises:
        DataError: the file cannot be read; for a broken row, only once that row is reached.
    """
    empty = True
    for batch in _READERS[_kind(path)](path, rows):
        if not batch.empty:
            empty = False
            yield batch
    if empty:
        raise DataError(f"{path} has column names but no rows: add at least one row below the header.")


def sample_rows(frame: pd.DataFrame, rows: int, seed: int, fewest: int = 10) -> pd.DataFrame:
    """Return about so many rows of examples, the labels in proportion but `fewest` of each if it has them; in order."""
    share = rows / len(frame)
    parts = [
        part.sample(min(len(part), max(fewest, round(share * len(part)))), random_state=seed)
        for _, part in frame.groupby("label")
    ]
    return pd.concat(parts).sort_index()


def name_rows(rows: Sequence[int]) -> str:
    """Return row numbers in words, the first few of them: "row 3", or "rows 3, 8, 9, 12, 20 and 4 more"."""
    shown = ", ".join(str(row) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def name_values(values: Sequence[str]) -> str:
    """Return strings in quotes, the first few of them, long ones cut: "'a', 'b' and 3 more"."""
    shown = ", ".join(repr(value if len(value) <= 40 else value[:39] + "…") for value in values[: 2 * _SHOWN])
    return shown + (f" and {len(values) - 2 * _SHOWN:,} more" if len(values) > 2 * _SHOWN else "")


def _drop_empty(path: Path, frame: pd.DataFrame, columns: list[str]) -> Table:
    """Leave out the rows that are blank in one of `columns`, and say which they were."""
    problems = []
    for column in columns:
        blank = frame[column].str.strip() == ""
        if blank.all():
            raise DataError(
                f"The {column} column of {path} is empty in every row: fill it, or name another one with "
                f"--{column}-column."
            )
        if blank.any():
            rows = list(frame.index[blank])
            problems.append(f"Left out of {path.name}, as the {column} is empty: {name_rows(rows)}.")
        frame = frame[~blank]
    return Table(frame, tuple(problems))


# Columns


def _resolve(
    path: Path, columns: list[str], text_column: str | None, label_column: str | None, need_labels: bool
) -> tuple[str, str | None]:
    """Return the names of the text and the label column, having seen that those needed are there."""
    check_unique(path, columns)
    text, label = find_columns(columns, text_column, label_column, need_labels)
    if text is None:
        raise _missing_column(path, columns, "text", text_column, TEXT_NAMES)
    if label is None and (need_labels or label_column is not None):
        raise _missing_column(path, columns, "label", label_column, LABEL_NAMES)
    return text, label


def find_columns(
    columns: list[str], text_column: str | None = None, label_column: str | None = None, need_labels: bool = True
) -> tuple[str | None, str | None]:
    """Return the text and the label column, None for what is not found; of two, one known by name tells the other."""
    text = _find([c for c in columns if text_column or c != label_column], text_column, TEXT_NAMES)
    label = _find([c for c in columns if c != text], label_column, LABEL_NAMES)
    if text is None and text_column is None and label is not None and len(columns) == 2:
        text = next(c for c in columns if c != label)
    if label is None and label_column is None and text is not None and len(columns) == 2 and need_labels:
        label = next(c for c in columns if c != text)
    return text, label


def _find(columns: list[str], wanted: str | None, names: tuple[str, ...]) -> str | None:
    """Return the column that is wanted, else the first with a usual name; case and outer spaces do not matter."""
    if wanted is not None and wanted in columns:
        return wanted
    by_name = {column.strip().casefold(): column for column in reversed(columns)}
    keys = names if wanted is None else (wanted.strip().casefold(),)
    return next((by_name[key] for key in keys if key in by_name), None)


def check_unique(path: Path, columns: list[str]) -> None:
    """Raise a DataError if two columns of the file have one name."""
    twice = sorted({column for column in columns if column.strip() and columns.count(column) > 1})
    if twice:
        raise DataError(f"{path} names the column {name_values(twice)} more than once: give each column its own name.")


def _missing_column(path: Path, columns: list[str], role: str, wanted: str | None, names: tuple[str, ...]) -> DataError:
    lack = f"no {role} column" if wanted is None else f"no {role} column {wanted!r}"
    usual = "" if wanted is not None else f" and none is called {', '.join(names[:3])} or the like"
    return DataError(
        f"{path} has {lack}: its first row names {name_values(columns)}{usual}; "
        f"name the right one with --{role}-column, or add a header row if there is none."
    )


# Formats


def _kind(path: Path) -> str:
    """Return which of the readers fits the file, by its first bytes and its extension."""
    head = _head(path)
    suffix = path.suffix.lower()
    if head.startswith(b"PAR1") or suffix == ".parquet":
        return "parquet"
    if suffix in (".json", ".jsonl", ".ndjson") or head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return "json"
    return "csv"


def _head(path: Path) -> bytes:
    """Return the file's first bytes, having seen that it is a file, readable and not empty."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the CSV, TSV, JSONL or Parquet file itself.")
    if not path.is_file():
        raise DataError(f"There is no file {path}: check the path for typing errors.")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check its permissions.") from error
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(f"{path} is empty: it needs a header with a text column, and rows below.")
    return head


def _encoding(path: Path) -> str:
    """Return a text file's encoding: what its byte-order mark says, else UTF-8 if it is that, else Windows-1252."""
    head = _head(path)
    candidates: tuple[str, ...] = ("utf-8", "cp1252")
    if head.startswith(codecs.BOM_UTF8):
        candidates = ("utf-8-sig",)
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        candidates = ("utf-16",)
    elif head.count(0) > _MAX_NUL_SHARE * len(head):
        candidates = ()
    elif 0 in head:
        candidates = ("utf-8",)
    for encoding in candidates:
        if _decodes(path, encoding):
            return encoding
    raise DataError(f"{path} is not a text file that can be read: save it as CSV in UTF-8 and try again.")


def _decodes(path: Path, encoding: str) -> bool:
    """Say whether the whole file is valid in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _delimiter(path: Path, encoding: str) -> str | None:
    """Return the delimiter that splits the header into most columns; None for the header of one column."""
    with path.open(encoding=encoding, newline="") as file:
        header = next((line for line in file if line.strip()), "")[:_HEAD_BYTES]
    widths = {delimiter: len(next(csv.reader([header], delimiter=delimiter), [])) for delimiter in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda delimiter: widths[delimiter])
    return best if widths[best] > 1 else None


def _csv_batches(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    form = file_format(path)
    columns = None
    try:
        with pd.read_csv(
            path,
            sep=form.delimiter or _NO_DELIMITER,
            encoding=form.encoding,
            header=None,  # The header is read as a row, so that twice-named columns show and every row has its width.
            dtype=str,
            na_filter=False,
            skip_blank_lines=form.delimiter is not None,  # In a file of one column a blank line is an empty text.
            chunksize=rows,
        ) as chunks:
            for chunk in chunks:
                if columns is None:
                    columns, chunk = chunk.iloc[0].tolist(), chunk.iloc[1:]
                yield chunk.set_axis(columns, axis="columns")
    except pd.errors.ParserError as error:
        raise _broken_csv(path, str(error)) from error


def _broken_csv(path: Path, reason: str) -> DataError:
    """Turn the parser's words into what to do about the file."""
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if ragged:
        expected, line, seen = ragged.groups()
        return DataError(
            f"Line {line} of {path} has {seen} values where the header has {expected} (a cell with line breaks in it "
            "counts as one line): put texts that contain the delimiter in double quotes."
        )
    quote = re.search(r"EOF inside string starting at row (\d+)", reason)
    if quote:
        return DataError(f"{path} has a double quote that is never closed, from row {quote[1]} on: close or remove it.")
    return DataError(f"{path} cannot be read as a table ({reason.strip()}): save it as CSV in UTF-8 and try again.")


def _json_batches(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    # One pass for the names, as the first object need not have them all.
    columns = list(dict.fromkeys(name for record in _json_records(path) for name in record))
    return _frames(_json_records(path), columns, rows)


def _json_records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding=_encoding(path)) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise DataError(
                    f"Line {number} of {path} is not a JSON object: write one object a line, such as "
                    '{"text": "...", "label": "..."}.'
                )
            yield record


def _parquet_batches(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    try:
        with pq.ParquetFile(path) as file:
            columns = list(file.schema_arrow.names)
            check_unique(path, columns)
            records = (record for batch in file.iter_batches(batch_size=rows) for record in batch.to_pylist())
            yield from _frames(records, columns, rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: write or download it again.") from error


def _frames(records: Iterator[dict[str, Any]], columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
    start = 1
    while block := list(islice(records, rows)):
        cells = [[_cell(record.get(column)) for column in columns] for record in block]
        yield pd.DataFrame(cells, columns=columns, index=range(start, start + len(block)), dtype=str)
        start += len(block)


def _cell(value: object) -> str:
    """Return a value as text; half a surrogate pair, which JSON can write but no text can hold, becomes "?"."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


_READERS = {"csv": _csv_batches, "json": _json_batches, "parquet": _parquet_batches}
