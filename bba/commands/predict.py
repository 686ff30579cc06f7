"""`predict`: classify a text or a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from bba.commands.typed import asked_for
from bba.errors import DataError
from bba.output import Result, of_prediction, progress_bar

if TYPE_CHECKING:
    from bba.predict import Asked


def predict(
    checkpoint: Path,
    text: str | None = None,
    input: Path | None = None,
    output: Path | None = None,
    budget: str | None = None,
    ffn_budget: str | None = None,
    target_cost: float | None = None,
    target_accuracy: float | None = None,
    text_column: str | None = None,
    backend: str = "torch",
) -> Result:
    """Classify a text, or every row of a file, at a budget.

    Args:
        checkpoint: folder of the checkpoint.
        text: a text to classify.
        input: a CSV, TSV, JSONL or Parquet file with a column of texts.
        output: CSV to write: the input's rows in their order, and label, probability and budget of each.
        budget: head budget in (0, 1], or a pair HEAD:FFN; without it all heads that are there. With `auto` each text
            gets a budget of its own: a small one first, larger ones while the answer is not sure enough.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
        target_cost: for `auto`: mean share of the dense encoder's FLOPs that is not to be passed.
        target_accuracy: for `auto`: accuracy on validation to be reached as cheaply as possible. With neither of the
            two it is that of the largest budget.
        text_column: the column of texts, where its name does not tell.
        backend: what the model runs on: torch, onnx, or onnx-int8, whose answers differ a little.
    """
    from bba.predict import BudgetedClassifier

    asked = _asked(budget, ffn_budget, target_cost, target_accuracy)
    if text is not None and input is None and output is None:
        prediction = BudgetedClassifier.from_pretrained(checkpoint).on(backend).predict([text], *asked)[0]
        return of_prediction(prediction)
    if text is not None or input is None or output is None:
        raise DataError("Give either --text, or both --input and --output.")
    classifier = BudgetedClassifier.from_pretrained(checkpoint).on(backend)
    classifier.predict([], *asked)  # What is asked is refused before the file is read.
    from bba.batch import classify_file  # Which needs what reads tables; a single text need not wait for that.

    rows, blank = classify_file(classifier, input, output, asked, text_column, progress_bar("rows"))
    note = f"; {blank} of them have no text and got no label" if blank else ""
    return Result({"output": str(output), "n": rows, "blank": blank}, f"{rows} rows written to {output}{note}.")


def _asked(
    budget: str | None, ffn_budget: str | None, target_cost: float | None, target_accuracy: float | None
) -> "Asked":
    from bba.predict import AUTO, Asked

    heads, ffn = asked_for(None if budget == AUTO else budget, ffn_budget)
    return Asked(AUTO if budget == AUTO else heads, ffn, target_cost, target_accuracy)
