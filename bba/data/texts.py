"""Labelled texts, and how they are split: class by class, by a seed."""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bba.errors import DataError


@dataclass(frozen=True)
class Split:
    """Texts, and for each of them the position of its label in the label names."""

    texts: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, n: int, seed: int) -> "Split":
        """Return `n` examples, or all if there are fewer, with the classes in the same proportions; order is kept."""
        if n < 1:
            raise DataError(f"{n} examples are none to work with: give a number of at least 1.")
        return self.take(sorted(_mixed_order(self.labels, seed)[:n]))

    def digest(self) -> str:
        """Return a hash of the texts and labels: equal for equal splits, in this and any other process."""
        content = json.dumps([self.texts, self.labels], ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def take(self, positions: Sequence[int]) -> "Split":
        """Return the examples at these positions, in this order."""
        return Split([self.texts[i] for i in positions], [self.labels[i] for i in positions])


@dataclass(frozen=True)
class TextData:
    """A classification task, ready to train on."""

    task: str
    """Name of the task, or of the file."""
    label_names: tuple[str, ...]
    """The classes; a label is a position in here."""
    train: Split
    validation: Split
    """For choices: when to stop, which heads to keep."""
    test: Split
    """For one measurement at the end."""
    source: str
    """Where the texts came from, in words."""
    licence: str
    """What may be done with them, in a sentence."""
    problems: tuple[str, ...] = ()
    """A sentence for each thing that people should know about the data, such as rows left out."""

    def origin(self) -> dict[str, Any]:
        """Return what a report says of the texts, by the names of its fields."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {
            "task": self.task,
            "labels": list(self.label_names),
            "source": self.source,
            "licence": self.licence,
            "counts": {name: len(split) for name, split in splits.items()},
        }


def deal(labels: Sequence[int], shares: tuple[float, ...], seed: int) -> list[list[int]]:
    """Deal the positions of `labels` into a part per share and one for the rest, class by class, order kept.

    Each part gets at least one of a class; a class with too few for that goes to the rest whole.
    """
    rng = random.Random(seed)
    parts: list[list[int]] = [[] for _ in (*shares, None)]
    for positions in _by_class(labels, rng):
        left = positions
        if len(positions) > len(shares):
            for part, share in zip(parts, shares, strict=False):
                count = max(1, round(share * len(positions)))
                part += left[:count]
                left = left[count:]
        parts[-1] += left
    return [sorted(part) for part in parts]


def _mixed_order(labels: Sequence[int], seed: int) -> list[int]:
    """Return the positions of `labels` in an order in which every beginning has the classes in proportion."""
    rng = random.Random(seed)
    keys = {}
    for positions in _by_class(labels, rng):
        keys.update({p: (rank + rng.random()) / len(positions) for rank, p in enumerate(positions)})
    return sorted(keys, key=lambda position: keys[position])


def _by_class(labels: Sequence[int], rng: random.Random) -> list[list[int]]:
    """Return the positions of each class, shuffled."""
    members = defaultdict(list)
    for position, label in enumerate(labels):
        members[label].append(position)
    classes = [members[label] for label in sorted(members)]
    for positions in classes:
        rng.shuffle(positions)
    return classes
