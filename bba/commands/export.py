"""`export`: an ONNX file."""

import logging
from pathlib import Path

from bba.commands.examples import examples_of
from bba.commands.typed import asked_for
from bba.errors import DataError
from bba.output import Result, of_export

logger = logging.getLogger(__name__)


def export(
    checkpoint: Path,
    out: Path,
    budget: str | None = None,
    ffn_budget: str | None = None,
    int8: bool = False,
    data: Path | None = None,
    limit: int = 500,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Result:
    """Write a checkpoint at a setting as an ONNX file with its tokenizer beside it, checked against the model.

    Args:
        checkpoint: folder of the checkpoint.
        out: file to write; its name ends in .onnx.
        budget: head budget in (0, 1], or a pair HEAD:FFN; without it all heads that are there.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
        int8: store weights as 8-bit integers: smaller and usually quicker, not exactly equal.
        data: texts with labels that file and model are compared on: folder of the task's data, or a file; without it
            the task's validation texts, where they are to be had.
        limit: compare on this many of them.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba.export import export as write_onnx
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    asked = asked_for(budget, ffn_budget)
    classifier.at(*asked)
    try:
        examples = examples_of(classifier, data, "validation", (text_column, label_column)).subset(limit, seed=0)
    except DataError as error:
        if data is not None or limit < 1:
            raise
        logger.warning("Compared on random tokens alone, as there are no texts. %s", error)
        examples = None
    known = (examples.texts, examples.labels) if examples else (None, None)
    return of_export(write_onnx(classifier, out, *asked, int8, *known), len(examples or ()))
