"""A look at a file of examples before anything is trained on it: what it is, what it holds, what is wrong with it."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bba.data.sources import split_table
from bba.data.tables import FileFormat, check_unique, file_format, find_columns, iter_batches, name_rows, read_table
from bba.errors import DataError

MAX_BYTES = 200 * 2**20
"""The largest file that is looked at."""
PREVIEW_ROWS = 20
MANY = 0.9
"""From this share of one label on, accuracy alone says little, and people are told."""


@dataclass(frozen=True)
class Glance:
    """What the first rows of a file tell."""

    format: FileFormat
    columns: list[str]
    text_column: str
    """The column that probably holds the texts."""
    label_column: str | None
    """The column that probably holds the labels; None in a file of one column."""
    preview: pd.DataFrame
    """The first rows as strings, all columns; the index is the row's number from 1."""


@dataclass(frozen=True)
class Inspection:
    """What a whole file holds."""

    rows: int
    """Rows with a text and a label."""
    counts: dict[str, int]
    """Rows of each label, the most frequent first."""
    problems: tuple[str, ...]
    """A sentence for each thing that people should know or mend, with row numbers."""
    splits: dict[str, int]
    """Rows used for train, validation and test; empty where the file cannot be trained on."""
    error: str | None
    """Why the file cannot be trained on, in a sentence; None if it can."""


def glance(path: Path) -> Glance:
    """Look at a file's first rows and guess which columns hold texts and labels.

    A usual name decides. Where there is none, the text is the column with the longest cells and the label the one with
    fewest different ones.

    Raises:
        DataError: the file is too large or cannot be read.
    """
    form = file_format(path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DataError(f"{path} has {size / 2**20:.0f} MB: give at most {MAX_BYTES // 2**20} MB, a part of its rows.")
    preview = next(iter_batches(path, PREVIEW_ROWS))
    columns = list(preview.columns)
    check_unique(path, columns)
    text, label = find_columns(columns)
    if text is None:
        text = max((c for c in columns if c != label), key=lambda c: preview[c].str.len().mean(), default=columns[0])
    if label is None:
        label = min((c for c in columns if c != text), key=lambda c: preview[c].nunique(), default=None)
    return Glance(form, columns, text, label, preview)


def inspect(path: Path, text_column: str, label_column: str) -> Inspection:
    """Read a whole file and return what can be trained on it.

    Raises:
        DataError: the file cannot be read, or has no such columns, or none of its rows can be used.
    """
    table = read_table(path, text_column, label_column)
    frame, counts = table.frame, Counter(table.frame["label"])
    problems = (
        *_headless(label_column, counts),
        *table.problems,
        *_repeated(frame),
        *_alike(list(counts)),
        *_uneven(counts),
    )
    splits, error = {}, None
    try:
        data = split_table(path, table, seed=0)
    except DataError as problem:
        error = str(problem)
    else:
        problems += data.problems[len(table.problems) :]
        splits = {name: len(getattr(data, name)) for name in ("train", "validation", "test")}
    return Inspection(len(frame), dict(counts.most_common()), problems, splits, error)


def _headless(label_column: str, counts: Counter[str]) -> list[str]:
    """Return what is to be said where the first row looks like an example."""
    if label_column.strip() not in counts:
        return []
    return [
        f"The first row was read as the names of the columns, but {label_column!r} is a label in other rows: if it is "
        "an example, add a row of names above it."
    ]


def _repeated(frame: pd.DataFrame) -> list[str]:
    """Return what is to be said of texts that are there more than once."""
    found = []
    different = frame.drop_duplicates(["text", "label"])
    torn = different[different.duplicated("text", keep=False)]
    if not torn.empty:
        found.append(
            f"The same text has different labels, so some of them must be wrong: {name_rows(list(torn.index))}."
        )
    copies = frame[frame.duplicated(["text", "label"])]
    if not copies.empty:
        found.append(
            f"Copies of an earlier row, which make the accuracy look better than it is when one is trained on and the "
            f"other tested: {name_rows(list(copies.index))}."
        )
    return found


def _alike(labels: list[str]) -> list[str]:
    """Return what is to be said of labels that differ in capitals or blanks alone."""
    spellings = defaultdict(list)
    for label in labels:
        spellings[" ".join(label.casefold().split())].append(label)
    return [
        f"These labels look like one that is spelt in several ways, and count as different: "
        f"{', '.join(map(repr, sorted(same)))}."
        for same in spellings.values()
        if len(same) > 1
    ]


def _uneven(counts: Counter[str]) -> list[str]:
    (label, most), *others = counts.most_common()
    share = most / counts.total()
    if not others or share < MANY:
        return []
    return [
        f"{share:.1%} of the rows have the label {label!r}, so always answering that would be right as often: hold the "
        "accuracy against it, and look at macro-F1, which counts every label alike."
    ]
