"""`predict`: classify a text or a file."""

from pathlib import Path

from bba.commands.typed import asked_for
from bba.errors import DataError
from bba.output import Result, of_prediction


def predict(
    checkpoint: Path,
    text: str | None = None,
    input: Path | None = None,
    output: Path | None = None,
    budget: str | None = None,
    ffn_budget: str | None = None,
    text_column: str | None = None,
) -> Result:
    """Classify a text, or every row of a file, at a budget.

    Args:
        checkpoint: folder of the checkpoint.
        text: a text to classify.
        input: a CSV, TSV, JSONL or Parquet file with a column of texts.
        output: CSV to write: the input's rows in their order, and label, probability and budget of each.
        budget: head budget in (0, 1], or a pair HEAD:FFN; without it all heads that are there.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
        text_column: the column of texts, where its name does not tell.
    """
    from bba.batch import classify_file
    from bba.predict import BudgetedClassifier

    asked = asked_for(budget, ffn_budget)
    if text is not None and input is None and output is None:
        prediction = BudgetedClassifier.from_pretrained(checkpoint).predict([text], *asked)[0]
        return of_prediction(prediction)
    if text is not None or input is None or output is None:
        raise DataError("Give either --text, or both --input and --output.")
    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    classifier.at(*asked)
    rows, blank = classify_file(classifier, input, output, asked, text_column)
    note = f"; {blank} of them have no text and got no label" if blank else ""
    return Result({"output": str(output), "n": rows, "blank": blank}, f"{rows} rows written to {output}{note}.")
