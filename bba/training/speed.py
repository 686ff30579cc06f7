"""How long a training takes on this machine: measured on its first steps, then shared out over the minutes to spend."""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from bba.data.texts import TextData
from bba.measure.latency import LatencySettings, rounds_after, time_in_turn, usual_length
from bba.measure.metrics import grid
from bba.model import BBAForSequenceClassification
from bba.model.inference import logits_of
from bba.model.packed import PackedClassifier
from bba.pruning.surgery import prune_to
from bba.settings import TrainSettings, usual_settings
from bba.training.stages import encode, planned_steps, set_trainable, with_teacher
from bba.training.start import first_model
from bba.training.trainer import BudgetTrainer, Stage

STAGES: tuple[Stage, ...] = ("dense", "soft", "hard")
TIMED_STEPS = 8
"""Steps of each stage that are timed: the hard stage's kinds of steps recur every 8."""
WARM_UP = 2
TIMED_TEXTS = 128
FEWEST_STEPS = 20
"""Fewest steps of a stage, however little time there is."""
MEASURING_SHARE = 0.25
"""Of the time to spend, the most that goes into anything but steps; of a larger file only some rows are used."""
MIN_ROWS = 2_000
"""Rows that are used in any case, if there are so many."""
SAVE_SECONDS = 20
"""Training between two saved states, the most that a stop loses."""


@dataclass(frozen=True)
class Speed:
    """What a training is made of and how long it takes on this machine, in seconds."""

    start: float
    """From the start of the program to the first step: libraries, file, vocabulary, weights."""
    dense: float
    """A step of the dense stage."""
    soft: float
    """A step of the soft stage."""
    hard: float
    """A step of the hard stage."""
    answer: float
    """Classifying one text with the full model."""
    answers: float
    """Classifying one text at every budget that accuracy is measured at."""
    latency: float
    """A round of the latency measurement at the end: every model once. Its warm-up takes about as long."""


@dataclass(frozen=True)
class Plan:
    """How a training spends its time."""

    training: TrainSettings
    rows: int
    """Rows of the file to use."""
    steps: dict[Stage, int]
    """Steps of each stage."""
    seconds: dict[str, float]
    """Expected seconds of start, dense, soft, hard and measuring."""
    usual: bool
    """Whether the time allows for all the steps that suit such a file; more of them would not help."""

    @property
    def total(self) -> float:
        """Expected seconds in all."""
        return sum(self.seconds.values())


def measure_speed(texts: TextData, backbone: str, started: float) -> Speed:
    """Train a few steps of each stage on some of the texts, and throw the model away.

    Args:
        texts: what is to be trained on.
        backbone: see `first_model`.
        started: when the program started, as `time.time()` counts.

    Raises:
        TrainingError: see `first_model`.
    """
    model_settings, settings = usual_settings(texts.task, backbone)
    model, tokenizer = first_model(texts, backbone, model_settings, settings.ffn)
    start = time.time() - started
    some = texts.train.subset((WARM_UP + TIMED_STEPS) * settings.batch_size, seed=0)
    sample = encode(some, tokenizer)
    rows = sample["input_ids"][:TIMED_TEXTS]
    taught = with_teacher(sample, model)
    asked = grid(model.config)
    ends = (model, prune_to(model, *asked[0]))
    answer, least = (_seconds_per_text(each, rows) for each in ends)
    latency = _seconds_per_round(ends)
    steps = {stage: _seconds_per_step(stage, model, tokenizer, taught, settings) for stage in STAGES}
    return Speed(
        start=start,
        **steps,
        answer=answer,
        answers=len(asked) * (answer + least) / 2,
        latency=(len(asked) + 1) * latency,
    )


def spend(minutes: float, speed: Speed, splits: dict[str, int], usual: TrainSettings) -> Plan:
    """Return how a training spends its minutes: the usual stages, all shortened alike to what there is time for.

    Args:
        minutes: to spend; a stage does at least `FEWEST_STEPS` steps, though, even if that takes longer.
        speed: from `measure_speed`.
        splits: texts in train, validation and test.
        usual: settings that suit task and backbone.
    """
    rows, time = sum(splits.values()), 60 * minutes
    timing = speed.latency * (rounds_after(time) + 1)
    around = _around(speed, splits, timing)
    most = MEASURING_SHARE * time
    if sum(around.values()) > most:
        used = max(rows * (most - speed.start - timing) / (sum(around.values()) - speed.start - timing), 0)
        used = min(rows, max(math.ceil(used), MIN_ROWS))
        splits = {name: math.ceil(count * used / rows) for name, count in splits.items()}
        rows, around = used, _around(speed, splits, timing)
    full = {stage: planned_steps(usual, stage, splits["train"])[0] for stage in STAGES}
    needed = sum(full[stage] * getattr(speed, stage) for stage in STAGES)
    share = min(1.0, (time - sum(around.values())) / needed)
    steps = {stage: max(FEWEST_STEPS, math.floor(share * full[stage])) for stage in STAGES}
    training = _with_steps(usual, steps, splits["train"], speed)
    steps = {stage: planned_steps(training, stage, splits["train"])[0] for stage in STAGES}
    seconds: dict[str, float] = {stage: steps[stage] * getattr(speed, stage) for stage in STAGES}
    seconds["soft"] += around["teacher"]
    seconds = {"start": around["start"], **seconds, "measuring": around["measuring"]}
    return Plan(training, rows, dict(steps), seconds, usual=share == 1)


def _around(speed: Speed, splits: dict[str, int], timing: float) -> dict[str, float]:
    """Return the seconds of everything but steps; `timing` are those of the latency measurement."""
    measured = splits["validation"] + splits["test"]
    return {
        "start": speed.start,
        "teacher": splits["train"] * speed.answer,
        "measuring": measured * speed.answers + timing,
    }


def _with_steps(usual: TrainSettings, steps: dict[Stage, int], texts: int, speed: Speed) -> TrainSettings:
    """Return settings that do these steps on so many training texts, with a state saved every so often."""
    stages = {
        stage: replace(getattr(usual, stage), epochs=round(steps[stage] * usual.batch_size / texts, 4))
        for stage in STAGES
    }
    between = math.ceil(SAVE_SECONDS / max(getattr(speed, stage) for stage in STAGES))
    return replace(usual, **stages, min_steps=FEWEST_STEPS, save_every=min(usual.save_every, max(10, between)))


class _StepTimes(TrainerCallback):
    """Notes when each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.ends.append(time.perf_counter())


def _seconds_per_step(
    stage: Stage,
    model: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    taught: Dataset,
    settings: TrainSettings,
) -> float:
    set_trainable(model, stage, settings)
    times = _StepTimes()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=WARM_UP + TIMED_STEPS,
            per_device_train_batch_size=settings.batch_size,
            save_strategy="no",
            seed=settings.seed,
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        trainer = BudgetTrainer(
            model,
            stage,
            settings,
            args=arguments,
            train_dataset=taught,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.remove_callback(trainer.progress)
        trainer.add_callback(times)
        trainer.train()
    return (times.ends[-1] - times.ends[WARM_UP - 1]) / TIMED_STEPS


def _seconds_per_text(model: BBAForSequenceClassification, rows: Sequence[Sequence[int]]) -> float:
    logits_of(model, rows[:8])
    start = time.perf_counter()
    logits_of(model, rows)
    return (time.perf_counter() - start) / len(rows)


def _seconds_per_round(models: Sequence[BBAForSequenceClassification]) -> float:
    """Return how long a model's turn takes when latency is measured, on average over these models."""
    ends: list[float] = []
    settings = LatencySettings(length=usual_length(models[0].config), rounds=3)
    runs = list(map(PackedClassifier, models))
    time_in_turn(runs, models[0].config.vocab_size, settings, lambda done: ends.append(time.perf_counter()))
    return (ends[-1] - ends[0]) / (settings.rounds - 1) / len(models)
