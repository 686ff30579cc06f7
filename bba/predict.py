"""Classifying texts at a budget, with a model that was really pruned to it."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bba import checkpoints
from bba.backends import TORCH, Runner, Variants, check_backend
from bba.checkpoints import BudgetFormerCheckpoint, Checkpoint
from bba.errors import BudgetError, CheckpointError, DataError
from bba.measure.card import model_card
from bba.measure.ladder import Ladder, Rung
from bba.measure.report import BudgetRow, LatencyRow, Report
from bba.model import BBAConfig, BudgetGates, SequenceClassifier, Setting, check_budget
from bba.pruning.cost import block_share, encoder_share, head_share
from bba.pruning.plan import Plan, plan_at, positions
from bba.pruning.surgery import prune, pruned_config
from bba.routing import climb

MANY_UNKNOWN = 0.3
"""From this share of unknown words on, people are warned that an answer means little."""
AUTO: Final = "auto"
"""Stands for a head budget where each text is to get one of its own."""


@dataclass(frozen=True)
class Encoded:
    """A text as token ids, and how much of it the model gets to read."""

    ids: list[int]
    tokens: int
    """Tokens of the whole text, [CLS] and [SEP] included."""
    unknown: float
    """Share of the text's own tokens that the tokenizer does not know, in [0, 1]."""


class Asked(NamedTuple):
    """The budget asked for, in the order of `BudgetedClassifier.predict`, which tells what each part means."""

    budget: float | Literal["auto"] | None = None
    ffn_budget: float = 1.0
    target_cost: float | None = None
    target_accuracy: float | None = None


@dataclass(frozen=True)
class Step:
    """A budget that a text was tried at."""

    rung: Rung
    """The budgets, and the probability that the answer had to have there for the text to stay."""
    label: str
    """The answer there."""
    probability: float
    """Its calibrated probability."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of a text."""

    text: str
    label: str
    probabilities: dict[str, float]
    """Probability of each label, in the order of the labels; they add up to 1."""
    budget: float
    """The head budget asked for; with budget "auto" the one that gave the answer."""
    ffn_budget: float
    """The FFN budget, likewise; 1 where only attention is cut."""
    cost: float
    """Share of the dense model's heads that was there."""
    encoder_cost: float
    """Share of the dense encoder's FLOPs, attention and feed-forward part together, for a text of 64 tokens. With
    budget "auto", for the tokens of this text, and all that was tried counts."""
    heads: int
    """Attention heads that were there."""
    encoded: Encoded
    """What the model read."""
    backend: str = TORCH
    """What the model ran on."""
    tried: tuple[Step, ...] = ()
    """With budget "auto" what was tried, the cheapest first; the last one gave the answer."""

    @property
    def probability(self) -> float:
        """Probability of the label."""
        return self.probabilities[self.label]


def readable(text: str) -> str:
    """Return text without NUL, and with "?" for half a surrogate pair, which no tokenizer can read."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> list[Encoded]:
    """Return the token ids of texts; what is beyond `max_length` tokens is cut off, the final [SEP] kept."""
    if not texts:
        return []
    texts = [readable(text) for text in texts]
    encoded = []
    for ids in tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, verbose=False)["input_ids"]:
        read = ids if len(ids) <= max_length else [*ids[: max_length - 1], ids[-1]]
        own = max(1, len(read) - 2)
        encoded.append(Encoded(read, len(ids), read.count(tokenizer.unk_token_id) / own))
    return encoded


_Checkpoint = TypeVar("_Checkpoint", Checkpoint, BudgetFormerCheckpoint)


class Classifier(Generic[_Checkpoint]):
    """What every kind of classifier is: a checkpoint with a name.

    Args:
        checkpoint: model, tokenizer and report.
        name: what it is called in cards and messages.
    """

    def __init__(self, checkpoint: _Checkpoint, name: str) -> None:
        self.checkpoint: _Checkpoint = checkpoint
        self.name = name

    @property
    def labels(self) -> list[str]:
        """Names of the classes."""
        return self.checkpoint.model.config.labels

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Return texts as the model reads them; see `encode`."""
        return encode(self.checkpoint.tokenizer, texts, self.checkpoint.model.config.max_position_embeddings)


class BudgetedClassifier(Classifier[Checkpoint]):
    """A text classifier whose cost is a dial: one checkpoint, any head budget in (0, 1], and any FFN budget."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        super().__init__(checkpoint, name)
        self.backend = TORCH
        """What `predict` runs on; see `on`."""
        self.variants = Variants(checkpoint.model)
        """What was pruned and made for other backends, kept for the next call."""

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BudgetedClassifier":
        """Load a checkpoint folder.

        Raises:
            CheckpointError: it is missing, damaged, or not a budgeted model.
        """
        folder = Path(folder)
        return cls(checkpoints.load(folder), folder.resolve().name)

    @property
    def largest_budget(self) -> float:
        """The largest head budget this checkpoint serves: 1, or what it was pruned to."""
        return head_share(self.checkpoint.model.config)

    @property
    def largest_ffn_budget(self) -> float:
        """The largest FFN budget this checkpoint serves: 1, or what it was pruned to."""
        return block_share(self.checkpoint.model.config)

    @property
    def has_ffn_dial(self) -> bool:
        """Whether it was trained for FFN budgets below 1."""
        return self.checkpoint.model.ffn_gates is not None

    @property
    def report(self) -> Report | None:
        """What was measured when it was trained."""
        return self.checkpoint.report

    def opening_budgets(self) -> list[list[float | None]]:
        """Return the budget at which each head of the dense model opens, layer by layer; None if it is gone."""
        model = self.checkpoint.model
        return _opening_budgets(model.config.dense_heads, model.config.heads, model.gates)

    def opening_ffn_budgets(self) -> list[list[float | None]]:
        """Return the same for the feed-forward blocks; layers without blocks where there is no FFN dial."""
        model = self.checkpoint.model
        return _opening_budgets(model.config.dense_blocks, model.config.blocks, model.ffn_gates)

    def on(self, backend: str) -> "BudgetedClassifier":
        """Return the same classifier, with the same memory, whose `predict` runs on another backend.

        The first call at a setting makes the graph, in a moment or, for int8, some seconds; it is then kept. In float32
        the answers are torch's up to rounding. In int8 they are slightly others: how often the label is right there is
        a figure of its own, which `python -m bba evaluate --backend onnx-int8` measures.

        Args:
            backend: `torch`, `onnx` or `onnx-int8`.

        Raises:
            BudgetError: there is no such backend.
        """
        other = copy.copy(self)
        other.backend = check_backend(backend)
        return other

    def at(self, budget: float | None = None, ffn_budget: float = 1.0) -> SequenceClassifier:
        """Return the model pruned to a setting, in torch, from the cache if it is there.

        The model is shared, and shares memory with others: do not change it.

        Args:
            budget: head budget in (0, 1]; None asks for all that is there.
            ffn_budget: FFN budget in (0, 1]; 1 leaves the feed-forward part as it is.

        Raises:
            BudgetError: a budget is not in (0, 1], or more than the checkpoint has.
        """
        return self.variants.pruned(self._plan(budget, ffn_budget))

    def running(self, budget: float | None = None, ffn_budget: float = 1.0) -> Runner:
        """Return the model pruned to a setting, ready to run on this classifier's backend; see `at`."""
        return self.variants.running(self._plan(budget, ffn_budget), self.backend)

    def asked(self, budget: float | None, ffn_budget: float) -> Setting:
        """Return a setting as answers and cards name it: None asks for all heads there are.

        Raises:
            BudgetError: a budget is no number above 0 and up to 1.
        """
        heads = self.largest_budget if budget is None else check_budget(budget)
        return Setting(heads, min(check_budget(ffn_budget), self.largest_ffn_budget))

    def _plan(self, budget: float | None, ffn_budget: float) -> Plan:
        return plan_at(self.checkpoint.model, self.largest_budget if budget is None else budget, ffn_budget)

    def ladder(self, target_cost: float | None = None, target_accuracy: float | None = None) -> Ladder:
        """Return the budgets that texts climb with budget "auto", chosen on validation when it was trained.

        Args:
            target_cost: mean share of the dense encoder's FLOPs, in (0, 1], that is not to be passed.
            target_accuracy: accuracy, in (0, 1], to be reached as cheaply as possible. With neither of the two it is
                that of the largest budget.

        Raises:
            BudgetError: both targets are given, or what is given cannot be met.
            CheckpointError: no ladders were chosen for this checkpoint.
        """
        if target_cost is not None and target_accuracy is not None:
            raise BudgetError("A target cost and a target accuracy are given: give one of them.")
        if self.report is None or self.report.routing is None:
            raise CheckpointError(
                f"{self.name} has no budgets per text: give a number as budget, or, for a checkpoint that was not "
                "pruned, choose them with `python -m bba calibrate`."
            )
        if target_cost is not None:
            return self.report.routing.within(target_cost)
        if target_accuracy is None:
            target_accuracy = max(self.report.validation, key=lambda row: row.encoder_cost).accuracy
        return self.report.routing.reaching(target_accuracy)

    def predict(
        self,
        texts: Sequence[str],
        budget: float | Literal["auto"] | None = None,
        ffn_budget: float = 1.0,
        target_cost: float | None = None,
        target_accuracy: float | None = None,
        batch_size: int = 64,
    ) -> list[Prediction]:
        """Classify texts, in their order, at a setting or each at a budget of its own, on this backend (see `on`).

        Args:
            texts: any number of them; long ones are cut, which `Prediction.encoded` tells.
            budget: head budget in (0, 1]; None asks for all that is there. "auto" tries each text at a small budget
                first and goes on to larger ones while the answer is not sure enough.
            ffn_budget: FFN budget in (0, 1]; 1 leaves the feed-forward part as it is, or, with "auto", to the choice.
            target_cost: for "auto", see `ladder`.
            target_accuracy: for "auto", see `ladder`.
            batch_size: texts at a time; it changes neither answers nor budgets.

        Raises:
            BudgetError: see `at` and `ladder`.
            CheckpointError: see `ladder`.
            DataError: `texts` is one string, one of them is blank or no text, or `batch_size` is below 1.
        """
        check_texts(texts)
        if batch_size < 1:
            raise DataError(f"The batch_size is {batch_size}: give at least 1.")
        if budget == AUTO:
            if ffn_budget != 1:
                raise BudgetError('Budget "auto" chooses the FFN budget too: leave it out.')
            return self._climbing(texts, self.ladder(target_cost, target_accuracy), batch_size)
        if target_cost is not None or target_accuracy is not None:
            raise BudgetError('A target cost or accuracy is for budget "auto" only: leave it out, or ask for "auto".')
        plan = self._plan(budget, ffn_budget)
        config = pruned_config(self.checkpoint.model.config, plan)
        encoded = self.encode(texts)
        runner = self.variants.running(plan, self.backend)
        logits = runner.logits_of([one.ids for one in encoded], batch_size)
        asked = self.asked(budget, ffn_budget)
        return [
            self._prediction(*row, config=config, asked=asked)
            for row in zip(texts, encoded, logits.softmax(dim=-1), strict=True)
        ]

    def _prediction(
        self, text: str, encoded: Encoded, probabilities: Tensor, config: BBAConfig, asked: Setting
    ) -> Prediction:
        return Prediction(
            text=text,
            label=self.labels[int(probabilities.argmax())],
            probabilities=dict(zip(self.labels, probabilities.tolist(), strict=True)),
            budget=asked.budget,
            ffn_budget=asked.ffn_budget,
            cost=head_share(config),
            encoder_cost=encoder_share(config),
            heads=config.num_kept_heads,
            encoded=encoded,
            backend=self.backend,
        )

    def _climbing(self, texts: Sequence[str], ladder: Ladder, batch_size: int) -> list[Prediction]:
        if not texts:
            return []
        encoded = self.encode(texts)
        done = climb(self._rung, [one.ids for one in encoded], ladder.rungs, batch_size)
        predictions = []
        for row in zip(texts, encoded, done.tried, done.costs, strict=True):
            text, read, tried, cost = row
            steps = tuple(self._step(*pair) for pair in zip(ladder.rungs, tried, strict=False))
            asked = steps[-1].rung.setting
            answer = self._prediction(text, read, tried[-1], config=self._rung(*asked)[1], asked=asked)
            predictions.append(replace(answer, encoder_cost=cost, tried=steps))
        return predictions

    def _rung(self, budget: float, ffn_budget: float) -> tuple[Runner, BBAConfig]:
        """Return what runs a setting on this backend, and how large the pruned model is."""
        plan = self._plan(budget, ffn_budget)
        return self.variants.running(plan, self.backend), pruned_config(self.checkpoint.model.config, plan)

    def _step(self, rung: Rung, probabilities: Tensor) -> Step:
        best = int(probabilities.argmax())
        return Step(rung, self.labels[best], float(probabilities[best]))

    def prune(self, budget: float, ffn_budget: float = 1.0) -> "BudgetedClassifier":
        """Return a classifier on the same backend that has only what a setting pays for; it can be pruned further.

        Raises:
            BudgetError: see `at`.
        """
        model = self.checkpoint.model
        plan, asked = plan_at(model, budget, ffn_budget), Setting(float(budget), float(ffn_budget))
        report = self.report and _pruned_report(self.report, self.name, asked, plan)
        smaller = Checkpoint(prune(model, plan).eval(), self.checkpoint.tokenizer, report)
        return BudgetedClassifier(smaller, f"{self.name}-{str(asked).replace(':', '-')}").on(self.backend)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint folder, whole or not at all.

        Raises:
            CheckpointError: something is there already, or the disk is full.
        """
        name = Path(folder).resolve().name
        card = model_card(name, self.report) if self.report else f"# {name}\n\nA budgeted text classifier.\n"
        checkpoints.save(Path(folder), self.checkpoint, card)


def check_texts(texts: Sequence[str]) -> None:
    """See that there are texts to classify.

    Raises:
        DataError: `texts` is one string, or one of them is blank or no text.
    """
    if isinstance(texts, str):
        raise DataError("One string was given where a list of texts is expected: write predict([text]).")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"Text {number} of {len(texts)} is {type(text).__name__}, no text: give strings.")
        if not text.replace("\0", "").strip():
            raise DataError(f"Text {number} of {len(texts)} is empty: give at least one word to classify.")


def _opening_budgets(
    dense: Sequence[int], kept: Sequence[Sequence[int]], gates: BudgetGates | None
) -> list[list[float | None]]:
    budgets: list[list[float | None]] = [[None] * count for count in dense]
    if gates is not None:
        for (layer, unit), budget in zip(positions(kept), gates.opening_budgets(), strict=True):
            budgets[layer][unit] = float(budget)
    return budgets


def _pruned_report(report: Report, name: str, asked: Setting, plan: Plan) -> Report:
    """Keep what still holds for a pruned checkpoint: the rows of the heads and blocks it has, and its parent."""

    def holds(row: BudgetRow | LatencyRow) -> bool:
        return row.heads <= plan.num_heads and row.blocks <= plan.num_blocks

    dense, *pruned = report.latency.rows
    return replace(
        report,
        validation=list(filter(holds, report.validation)),
        test=list(filter(holds, report.test)),
        latency=replace(report.latency, rows=[dense, *filter(holds, pruned)]),
        no_attention=report.no_attention and (report.no_attention if holds(report.no_attention) else None),
        parent={"name": report.parent["name"] if report.parent else name, **asked._asdict()},
        routing=None,  # Its ladders lead to budgets that are gone.
    )
