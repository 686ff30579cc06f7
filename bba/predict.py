"""Classifying texts at a budget, with a model that was really pruned to it."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bba import checkpoints
from bba.checkpoints import Checkpoint
from bba.errors import DataError
from bba.measure.card import model_card
from bba.measure.report import Report
from bba.model import BBAForSequenceClassification
from bba.model.inference import logits_of
from bba.pruning.cost import head_share
from bba.pruning.plan import head_positions, plan_at
from bba.pruning.surgery import prune

MANY_UNKNOWN = 0.3
"""From this share of unknown words on, people are warned that an answer means little."""
MAX_VARIANTS = 8
"""Pruned models kept at a time; making one takes some ten milliseconds."""


@dataclass(frozen=True)
class Encoded:
    """A text as token ids, and how much of it the model gets to read."""

    ids: list[int]
    tokens: int
    """Tokens of the whole text, [CLS] and [SEP] included."""
    unknown: float
    """Share of the text's own tokens that the tokenizer does not know, in [0, 1]."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of a text."""

    text: str
    label: str
    probabilities: dict[str, float]
    """Probability of each label, in the order of the labels; they add up to 1."""
    budget: float
    """The budget asked for."""
    cost: float
    """Share of the dense model's attention cost that was paid."""
    heads: int
    """Attention heads that were there."""
    encoded: Encoded
    """What the model read."""

    @property
    def probability(self) -> float:
        """Probability of the label."""
        return self.probabilities[self.label]


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> list[Encoded]:
    """Return the token ids of texts; what is beyond `max_length` tokens is cut off, the final [SEP] kept."""
    if not texts:
        return []
    # NUL is nothing; half a surrogate pair, which Python can hold but no tokenizer can read, becomes "?".
    texts = [text.replace("\0", "").encode("utf-8", "replace").decode("utf-8") for text in texts]
    encoded = []
    for ids in tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, verbose=False)["input_ids"]:
        read = ids if len(ids) <= max_length else [*ids[: max_length - 1], ids[-1]]
        own = max(1, len(read) - 2)
        encoded.append(Encoded(read, len(ids), read.count(tokenizer.unk_token_id) / own))
    return encoded


class BudgetedClassifier:
    """A text classifier whose cost is a dial: one checkpoint, any head budget in (0, 1].

    Args:
        checkpoint: model, tokenizer and report.
        name: what it is called in cards and messages.
    """

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self.checkpoint = checkpoint
        self.name = name
        self._variants: OrderedDict[int, BBAForSequenceClassification] = OrderedDict()
        self._lock = threading.Lock()  # The app's visitors share a classifier.

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BudgetedClassifier":
        """Load a checkpoint folder.

        Raises:
            CheckpointError: it is missing, damaged, or not a budgeted model.
        """
        folder = Path(folder)
        return cls(checkpoints.load(folder), folder.resolve().name)

    @property
    def labels(self) -> list[str]:
        """Names of the classes."""
        return self.checkpoint.model.config.labels

    @property
    def largest_budget(self) -> float:
        """The largest budget this checkpoint serves: 1, or what it was pruned to."""
        return head_share(self.checkpoint.model.config)

    @property
    def report(self) -> Report | None:
        """What was measured when it was trained."""
        return self.checkpoint.report

    def opening_budgets(self) -> list[list[float | None]]:
        """Return the budget at which each head of the dense model opens, layer by layer; None if it is gone."""
        model = self.checkpoint.model
        budgets: list[list[float | None]] = [[None] * count for count in model.config.dense_heads]
        for (layer, head), budget in zip(head_positions(model.config), model.gates.opening_budgets(), strict=True):
            budgets[layer][head] = float(budget)
        return budgets

    def at(self, budget: float | None = None) -> BBAForSequenceClassification:
        """Return the model pruned to a budget, from the cache if it is there; None asks for all that is there.

        The model is shared: do not change it.

        Raises:
            BudgetError: the budget is not in (0, 1], or more than the checkpoint has.
        """
        model = self.checkpoint.model
        plan = plan_at(model, self.largest_budget if budget is None else budget)
        if plan.num_heads == model.config.num_kept_heads:
            return model
        with self._lock:
            if plan.num_heads not in self._variants:
                self._variants[plan.num_heads] = prune(model, plan).eval()
            self._variants.move_to_end(plan.num_heads)
            if len(self._variants) > MAX_VARIANTS:
                self._variants.popitem(last=False)
            return self._variants[plan.num_heads]

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return texts as the model reads them; see `encode`."""
        return encode(self.checkpoint.tokenizer, texts, self.checkpoint.model.config.max_position_embeddings)

    def predict(self, texts: Sequence[str], budget: float | None = None, batch_size: int = 64) -> list[Prediction]:
        """Classify texts at a budget, in their order.

        Args:
            texts: any number of them; long ones are cut, which `Prediction.encoded` tells.
            budget: head budget in (0, 1]; None asks for all that is there.
            batch_size: texts at a time; it does not change the answers.

        Raises:
            BudgetError: see `at`.
            DataError: `texts` is one string, one of them is blank or no text, or `batch_size` is below 1.
        """
        _check_texts(texts)
        if batch_size < 1:
            raise DataError(f"The batch_size is {batch_size}: give at least 1.")
        model = self.at(budget)
        encoded = self.encode(texts)
        logits = logits_of(model, [one.ids for one in encoded], batch_size)
        asked = self.largest_budget if budget is None else float(budget)
        return [
            self._prediction(*row, model=model, budget=asked)
            for row in zip(texts, encoded, logits.softmax(dim=-1), strict=True)
        ]

    def _prediction(
        self, text: str, encoded: Encoded, probabilities: Tensor, model: BBAForSequenceClassification, budget: float
    ) -> Prediction:
        return Prediction(
            text=text,
            label=self.labels[int(probabilities.argmax())],
            probabilities=dict(zip(self.labels, probabilities.tolist(), strict=True)),
            budget=budget,
            cost=head_share(model.config),
            heads=model.config.num_kept_heads,
            encoded=encoded,
        )

    def prune(self, budget: float) -> "BudgetedClassifier":
        """Return a classifier that has only the heads of a budget; it can be pruned again, to less.

        Raises:
            BudgetError: see `at`.
        """
        model = self.checkpoint.model
        smaller = prune(model, plan_at(model, budget)).eval()
        report = self.report and _pruned_report(self.report, self.name, float(budget), smaller.config.num_kept_heads)
        return BudgetedClassifier(Checkpoint(smaller, self.checkpoint.tokenizer, report), f"{self.name}-{budget}")

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint folder, whole or not at all.

        Raises:
            CheckpointError: something is there already, or the disk is full.
        """
        name = Path(folder).resolve().name
        card = model_card(name, self.report) if self.report else f"# {name}\n\nA budgeted text classifier.\n"
        checkpoints.save(Path(folder), self.checkpoint, card)


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise DataError("One string was given where a list of texts is expected: write predict([text]).")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"Text {number} of {len(texts)} is {type(text).__name__}, no text: give strings.")
        if not text.replace("\0", "").strip():
            raise DataError(f"Text {number} of {len(texts)} is empty: give at least one word to classify.")


def _pruned_report(report: Report, name: str, budget: float, heads: int) -> Report:
    """Keep what still holds for a pruned checkpoint: the rows of the heads it has, and where they came from."""
    dense, *pruned = report.latency.rows
    latency = replace(report.latency, rows=[dense, *(row for row in pruned if row.heads <= heads)])
    return replace(
        report,
        validation=[row for row in report.validation if row.heads <= heads],
        test=[row for row in report.test if row.heads <= heads],
        latency=latency,
        parent={"name": report.parent["name"] if report.parent else name, "budget": budget},
    )
