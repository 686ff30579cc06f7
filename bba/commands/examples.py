"""The labelled texts that a checkpoint is measured on."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from bba.errors import DataError

if TYPE_CHECKING:
    from bba.data.texts import Split
    from bba.predict import BudgetedClassifier

logger = logging.getLogger(__name__)


def examples_of(
    classifier: "BudgetedClassifier", data: Path | None, split: str, columns: tuple[str | None, str | None]
) -> "Split":
    """Return the texts of a file, or those of a split of the task that a checkpoint was trained on.

    Raises:
        DataError: there is no such split, file or folder, or its labels are not the checkpoint's.
    """
    from bba.data.sources import TASKS, load_labelled_file, load_split
    from bba.data.synthetic import TASK as SYNTHETIC

    if split not in ("train", "validation", "test"):
        raise DataError(f"There is no split {split!r}: choose train, validation or test.")
    if data is not None and not data.exists():
        raise DataError(f"There is no file or folder {data}: check the path of --data for typing errors.")
    if data is not None and data.is_file():
        examples, problems = load_labelled_file(data, classifier.labels, *columns)
        for problem in problems:
            logger.warning(problem)
        return examples
    if classifier.report is None:
        raise DataError(f"{classifier.name} does not say what it was trained on: give a file with --data.")
    if classifier.report.task not in (SYNTHETIC, *TASKS):
        raise DataError(
            f"{classifier.name} was trained on {classifier.report.source}: give that file with --data, or another one "
            "with the same labels."
        )
    examples, labels = load_split(classifier.report.task, split, data, seed=classifier.report.seed)
    if list(labels) != classifier.labels:
        raise DataError(f"The data's labels are {', '.join(labels)}, the checkpoint's {', '.join(classifier.labels)}.")
    return examples
