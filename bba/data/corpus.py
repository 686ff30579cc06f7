"""Texts without labels, to distil an encoder on."""

import logging
from dataclasses import dataclass
from pathlib import Path

from bba.data.sources import TASKS, load_task
from bba.data.tables import read_table
from bba.data.texts import Split, deal
from bba.errors import DataError

logger = logging.getLogger(__name__)

HELD_OUT_SHARE = 0.05
"""Share of a person's own texts that is held out."""
HELD_OUT_TEXTS = 500
"""Most held-out texts of one source that the loss is measured on."""


@dataclass(frozen=True)
class Corpus:
    """Texts without labels."""

    train: list[str]
    held_out: list[str]
    """Never trained on: the loss is measured on them."""
    sources: tuple[str, ...]
    """A sentence for each source: what and how many texts, under which licence."""

    def digest(self) -> str:
        """Return a hash of the training texts."""
        return Split(self.train, [0] * len(self.train)).digest()


def read_corpus(texts: Path | None, data: Path | None, seed: int) -> Corpus:
    """Return the texts of a person's own file or, without one, the training texts of all named tasks.

    Args:
        texts: a CSV, TSV, JSONL or Parquet file with a column of texts.
        data: folder of the tasks' data, as for `load_task`.
        seed: decides what is held out. Of the tasks these are the validation texts that training with the same seed
            makes its choices on, so that they stay unseen; test texts are never used.

    Raises:
        DataError: the texts are not to be had.
    """
    if texts is not None:
        return _own_corpus(texts, seed)
    train, held_out, sources = [], [], []
    for name in TASKS:
        task = load_task(name, data, seed=seed)
        for problem in task.problems:
            logger.warning(problem)
        train += task.train.texts
        held_out += task.validation.subset(HELD_OUT_TEXTS, seed).texts
        sources.append(
            f"The {len(task.train):,} training texts of `{name}` ({task.source}), without their labels. {task.licence}"
        )
    return Corpus(train, held_out, tuple(sources))


def _own_corpus(path: Path, seed: int) -> Corpus:
    table = read_table(path, need_labels=False)
    for problem in table.problems:
        logger.warning(problem)
    texts = table.frame["text"].tolist()
    if len(texts) < 2:
        raise DataError(f"{path} has a single text: give at least two, as some are held out; better many thousands.")
    held_out, train = deal([0] * len(texts), (HELD_OUT_SHARE,), seed)
    return Corpus(
        [texts[row] for row in train],
        [texts[row] for row in held_out[:HELD_OUT_TEXTS]],
        (f"{len(train):,} texts of the file {path.name}, whose licence its owner knows.",),
    )
