"""Classifying a whole file: its rows in their order, with constant memory."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from bba.data.tables import find_text_column, iter_batches
from bba.errors import DataError
from bba.predict import AUTO, Asked, BudgetedClassifier


def classify_file(
    classifier: BudgetedClassifier,
    source: Path,
    target: Path,
    asked: Asked,
    text_column: str | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[int, int]:
    """Write `source`'s rows with label, probability and budget to the CSV `target`, which appears when it is complete.

    Where the feed-forward part is cut too, its budget follows in a column of its own; with budget "auto", what each row
    cost comes last. A column of the source that has one of these names keeps it; ours is then called `predicted_label`,
    and so on. A row without text gets empty cells.

    The rows are counted first, so that a file that is broken at its end is refused before any work is done.

    Args:
        classifier: what classifies.
        source: a CSV, TSV, JSONL or Parquet file.
        target: the CSV to write.
        asked: the budgets.
        text_column: the column of texts, where its name does not tell.
        progress: hears the share of the rows that is done, in [0, 1].

    Returns:
        How many rows were written, and how many of them have no text.

    Raises:
        DataError: the source cannot be read, or the target is there already or cannot be written.
    """
    if target.exists():
        raise DataError(f"{target} exists already: give --output another name, or remove it first.")
    column = find_text_column(source, text_column)
    total = sum(len(batch) for batch in iter_batches(source))
    rows = blank = 0
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".bba-") as folder:
            unfinished = Path(folder) / target.name
            for batch in iter_batches(source):
                answered = _classify(classifier, batch, column, asked)
                answered.to_csv(
                    unfinished,
                    mode="a",
                    header=rows == 0,
                    index=False,
                    encoding="utf-8",
                    lineterminator="\r\n",  # Only cells that hold a letter of it are quoted: "\r" alone ends a row too.
                )
                rows += len(batch)
                blank += int((batch[column].str.strip() == "").sum())
                progress(rows / total)
            os.replace(unfinished, target)
    except OSError as error:
        raise DataError(f"{target} could not be written ({error.strerror or error}): choose another place.") from error
    return rows, blank


def added_columns(classifier: BudgetedClassifier, asked: Asked) -> list[str]:
    """Return what `classify_file` adds: the last columns of its file, named so where the name is free."""
    auto = asked.budget == AUTO
    both = asked.ffn_budget < 1 or (auto and classifier.has_ffn_dial)
    return ["label", "probability", "budget", *(["ffn_budget"] if both else []), *(["encoder_cost"] if auto else [])]


def _classify(classifier: BudgetedClassifier, batch: pd.DataFrame, column: str, asked: Asked) -> pd.DataFrame:
    added = added_columns(classifier, asked)
    names = {name: f"predicted_{name}" if name in batch.columns else name for name in added}
    texts = batch[column].str.replace("\0", "", regex=False)
    filled = texts.str.strip() != ""
    predictions = classifier.predict(texts[filled].tolist(), *asked) if filled.any() else []
    result = batch.copy()
    for name in added:
        result[names[name]] = ""
        result.loc[filled, names[name]] = [str(getattr(prediction, name)) for prediction in predictions]
    return result
