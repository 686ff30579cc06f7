"""What a budgeted checkpoint is compared with: models of the same first weights, data and number of examples."""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from bba.measure.answers import Answers, answers_of
from bba.measure.ladder_choice import ladder_within
from bba.measure.metrics import grid
from bba.model import BBAForSequenceClassification, Setting, units_at
from bba.onnx_graph import card_of, write_onnx
from bba.onnx_model import OnnxModel
from bba.pruning.importance import Scores, chance, importance, magnitude, set_order
from bba.pruning.plan import Plan, everything
from bba.pruning.surgery import prune, prune_to
from bba.settings import StageSettings, TrainSettings
from bba.training.budgetformer import train_policies
from bba.training.per_text import Former, Router
from bba.training.stages import (
    gate_stages,
    labelled_batches,
    planned_steps,
    run_stage,
    training_seconds,
    with_teacher,
)
from bba.training.trainer import Stage

logger = logging.getLogger(__name__)

RECOVERY_EPOCHS = 1.0
"""Training after post-hoc pruning, as in the paper on budgeted attention."""
RECOVERY = "+recovery"


@dataclass(frozen=True)
class Training:
    """What went into a model."""

    examples: int
    """Training examples seen from the first weights on, repeats counted."""
    seconds: float
    """All that it took."""
    shared_seconds: float
    """The part of it that serves other settings of the same method."""


class Contestants:
    """The models of one seed that meet in a comparison, each trained once in a folder of its own.

    All start from the same first weights. Those that are trained on after the warm start learn from the same teacher,
    the dense warm start, and see as many examples as the budgeted checkpoint does.
    """

    def __init__(
        self,
        first: Callable[[], tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]],
        data: tuple[Dataset, Dataset],
        settings: TrainSettings,
        folder: Path,
    ) -> None:
        """Train nothing yet.

        Args:
            first: makes the first model and its tokenizer, the same at every call.
            data: encoded training and validation texts.
            settings: of all runs; the seed is among them.
            folder: holds the states of all of them.
        """
        self.first, self.data, self.settings, self.folder = first, data, settings, folder
        self._tokenizer = first()[1]

    def model(self, method: str, setting: Setting) -> BBAForSequenceClassification:
        """Return a method's model at a setting, trained if it was not yet, really pruned, in evaluation mode.

        Args:
            method: a name in `bba.measure.results.METHODS`.
            setting: head and FFN budget.
        """
        if method == "dense":
            return self._dense
        if method == "smaller":
            return self._smaller(setting)
        if method == "static":
            return prune_to(self._gated("static", setting), *setting)
        if method.endswith(RECOVERY):
            return self._recovered(method.removesuffix(RECOVERY), setting)
        if method in ("budgeted", "fixed-order"):
            return prune_to(self._gated(method), *setting)
        return prune_to(self._ranked[method], *setting)

    def per_text(self, method: str, setting: Setting) -> Router | Former:
        """Return a method that spends on each text what it needs, about a setting on average; trained if need be.

        Args:
            method: a name in `bba.measure.results.PER_TEXT`.
            setting: head and FFN budget.
        """
        return self._routed(setting) if method == "routed" else self._former(setting)

    def _former(self, setting: Setting) -> Former:
        folder, warm = self._folder_of("budgetformer", setting), copy.deepcopy(self._warm)
        model = train_policies(warm, self._tokenizer, self._taught, self.settings, setting.budget, folder)
        return Former(model.eval())

    def _routed(self, setting: Setting) -> Router:
        """Return the budgeted checkpoint with the ladder that is best on validation at the mean cost of a setting."""
        answers = self._answers if setting in self._answers.settings else self._answers.and_of(self._at([setting]))
        cost = answers.encoder_flops()[answers.settings.index(setting)].sum() / answers.dense_flops()
        return Router(self._gated("budgeted"), ladder_within(answers, cost))

    @cached_property
    def _answers(self) -> Answers:
        return self._at(grid(self._gated("budgeted").config))

    def _at(self, settings: Sequence[Setting]) -> Answers:
        """Return what the budgeted checkpoint says of the validation texts at these settings."""
        validation = self.data[1]
        return answers_of(self._gated("budgeted"), validation["input_ids"], validation["labels"], settings)

    def int8(self) -> OnnxModel:
        """Return the dense model with weights in int8, for one thread of ONNX Runtime."""
        path = self.folder / "int8.onnx"
        if not path.exists():
            card = card_of(self._dense, "dense", Setting(1.0), int8=True)
            write_onnx(self._dense, card, path.with_suffix(".writing"))
            path.with_suffix(".writing").rename(path)
        return OnnxModel(path)

    def training(self, method: str, setting: Setting) -> Training:
        """Return what went into a model that `model` has returned."""
        folder = self._folder_of(method, setting)
        own = training_seconds(folder)
        if method == "smaller":
            return Training(self._examples("dense") + self._gate_examples(), own, 0.0)
        warm = training_seconds(self.folder / "warm")
        if method.endswith(RECOVERY):
            shared = warm + training_seconds(self.folder / "dense")
            recovery = round(RECOVERY_EPOCHS * len(self.data[0]))
            return Training(self._examples("dense") + self._gate_examples() + recovery, own + shared, shared)
        examples = self._examples("dense") + self._gate_examples()
        return Training(examples, own + warm, warm if method in ("static", "budgetformer") else own + warm)

    def _folder_of(self, method: str, setting: Setting) -> Path:
        if method == "routed":
            return self.folder / "budgeted"
        if method in ("dense", "budgeted", "fixed-order"):
            return self.folder / method
        if method in ("smaller", "static", "budgetformer") or method.endswith(RECOVERY):
            return self.folder / f"{method}-{str(setting).replace(':', '-')}"
        return self.folder / "dense"

    def _examples(self, *stages: Stage) -> int:
        texts, batch = len(self.data[0]), self.settings.batch_size
        return sum([planned_steps(self.settings, stage, texts)[0] * batch for stage in stages])

    def _gate_examples(self) -> int:
        return self._examples("soft", "hard")

    @cached_property
    def _warm(self) -> BBAForSequenceClassification:
        return run_stage(
            "dense", self.first()[0], self._tokenizer, self.data, self.settings, self.folder / "warm" / "1"
        )

    @cached_property
    def _taught(self) -> tuple[Dataset, Dataset]:
        return with_teacher(self.data[0], self._warm), self.data[1]

    def _train_on(
        self, model: BBAForSequenceClassification, epochs: float, folder: Path
    ) -> BBAForSequenceClassification:
        """Train a model as it is, with the teacher, at the learning rate of the gate stages."""
        settings = replace(self.settings, dense=StageSettings(epochs, self.settings.hard.learning_rate), min_steps=1)
        return run_stage("dense", model, self._tokenizer, self._taught, settings, folder)

    @cached_property
    def _dense(self) -> BBAForSequenceClassification:
        epochs = self._gate_examples() / len(self.data[0])
        return self._train_on(copy.deepcopy(self._warm), epochs, self.folder / "dense" / "2")

    def _gated(self, method: str, setting: Setting | None = None) -> BBAForSequenceClassification:
        settings = self.settings if method != "fixed-order" else replace(self.settings, score_learning_rate=0.0)
        folder = self._folder_of(method, setting or Setting(1.0))
        return gate_stages(copy.deepcopy(self._warm), self._tokenizer, self._taught, settings, folder, setting)

    @cached_property
    def _ranked(self) -> dict[str, BBAForSequenceClassification]:
        """The dense model with its heads and neurons in the order of each ranking."""
        batches = labelled_batches(self.data[1], self._dense.config.pad_token_id)
        rankings: dict[str, Scores] = {
            "importance": importance(self._dense, batches),
            "magnitude": magnitude(self._dense),
            "random": chance(self._dense, self.settings.seed),
        }
        ranked = {name: copy.deepcopy(self._dense) for name in rankings}
        for name, model in ranked.items():
            set_order(model, rankings[name])
        return ranked

    def _recovered(self, ranking: str, setting: Setting) -> BBAForSequenceClassification:
        pruned = prune_to(self._ranked[ranking], *setting)
        return self._train_on(pruned, RECOVERY_EPOCHS, self._folder_of(ranking + RECOVERY, setting) / "3")

    def _smaller(self, setting: Setting) -> BBAForSequenceClassification:
        folder, fresh = self._folder_of("smaller", setting), self.first()[0]
        model = prune(fresh, even_plan(fresh, setting))
        model = run_stage("dense", model, self._tokenizer, self.data, self.settings, folder / "1")
        return self._train_on(model, self._gate_examples() / len(self.data[0]), folder / "2")


def even_plan(model: BBAForSequenceClassification, setting: Setting) -> Plan:
    """Return a plan that keeps as many heads and blocks as a setting pays for, as evenly over the layers as can be."""
    whole = everything(model.config)
    heads = _evenly(whole.heads, units_at(setting.budget, model.config.num_dense_heads))
    if setting.ffn_budget == 1:
        return Plan(heads, whole.blocks)
    return Plan(heads, _evenly(whole.blocks, units_at(setting.ffn_budget, model.config.num_dense_blocks)))


def _evenly(kept: Sequence[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """Keep the first units of each layer, `count` in all; the later layers get what does not divide."""
    layers = len(kept)
    ends = [count * layer // layers for layer in range(layers + 1)]
    return tuple(tuple(units[: end - start]) for units, start, end in zip(kept, ends, ends[1:], strict=False))
