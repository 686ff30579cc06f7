"""Training a small model on an easy form of the teaching task while people watch, in well under a minute.

It is the package's own stages and Trainer, with settings that are small enough to watch. `LiveRun` runs it in a process
of its own, which prints what it sees:

    python -m bba.training.live
"""

import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import (
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

from bba.data import synthetic
from bba.data.texts import Split
from bba.measure.metrics import score_budgets
from bba.model import BBAForSequenceClassification, Setting
from bba.model.backbones import from_scratch
from bba.pruning.plan import positions
from bba.settings import ModelSettings, StageSettings, TrainSettings
from bba.training.live_run import EVERY, FRESH, MODEL, Sight
from bba.training.stages import encode, initialise_gates, planned_steps, set_trainable, with_teacher
from bba.training.trainer import BudgetTrainer, ProgressBar, Stage

TRAINING = TrainSettings(
    dense=StageSettings(6.4, 1.5e-3),
    soft=StageSettings(2, 1e-3),
    hard=StageSettings(2.8, 1e-3),
    min_steps=1,
    min_budget=0.1,
)
TEXTS = 8_000
"""Training texts."""
HALF = 0.5
"""The budget whose gates are shown."""
STAGES: tuple[Stage, ...] = ("dense", "soft", "hard")


def few_things(count: int, seed: int | str) -> Split:
    """Return examples of the teaching task that speak of its first three things only, so that they are learned soon."""
    split = synthetic.synthetic_split(count, seed)
    return Split([_renamed(text) for text in split.texts], split.labels)


def _renamed(text: str) -> str:
    things = sorted({word.partition(":")[2] for word in text.split() if ":" in word})
    new = dict(zip(things, synthetic.THINGS, strict=False))
    return re.sub(r"\b(" + "|".join(things) + r")\b", lambda found: new[found[0]], text)


def simpler(split: Split, seed: int | str) -> Split:
    """Return texts without the takings of none, one or two of the things not asked for; their labels stay as they are.

    The first of the two skills that the task needs, to tell which taking is the last, is so learned before the other,
    to tell which takings count.
    """
    rng = random.Random(f"simpler/{seed}")
    return Split([_simpler(text, rng) for text in split.texts], split.labels)


def _simpler(text: str, rng: random.Random) -> str:
    words = text.split()
    asked = next(word[:-1] for word in words if word.endswith("?"))
    others = sorted({word.partition(":")[2] for word in words if ":" in word} - {asked})
    kept = {asked, *rng.sample(others, rng.randint(0, len(others)))}
    return " ".join(word for word in words if ":" not in word or word.partition(":")[2] in kept)


def _first_model(settings: ModelSettings, vocabulary: int) -> BBAForSequenceClassification:
    """Return a model with fresh weights of the spread that suits its width: BERT's 0.02 is made for far wider ones."""
    model = from_scratch(settings, vocabulary, synthetic.PEOPLE)
    for module in model.encoder.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=settings.hidden_size**-0.5)
    return model


class Watcher(TrainerCallback):
    """Looks at the model each time that the Trainer reports its loss."""

    def __init__(
        self,
        model: BBAForSequenceClassification,
        stage: Stage,
        first: Sight,
        fresh: Dataset,
        show: Callable[[Sight], None],
    ) -> None:
        self.model, self.stage, self.first, self.fresh, self.show = model, stage, first, fresh, show
        self.last = first
        self.started = time.monotonic()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Measure accuracy at all numbers of heads, and show it with the loss and the gates."""
        if not logs or "loss" not in logs:
            return
        self.last = replace(
            self.first,
            stage=self.stage,
            step=self.first.step + state.global_step,
            seconds=self.first.seconds + time.monotonic() - self.started,
            loss=logs["loss"],
            accuracy=_accuracy(self.model, self.fresh),
            gates=_gates(self.model, self.stage, state.global_step / state.max_steps),
        )
        self.show(self.last)


def _accuracy(model: BBAForSequenceClassification, fresh: Dataset) -> list[float]:
    heads = model.config.num_dense_heads
    settings = [Setting(kept / heads) for kept in range(1, heads + 1)]
    return [row.accuracy for row in score_budgets(model, fresh["input_ids"], fresh["labels"], settings)]


def _gates(model: BBAForSequenceClassification, stage: Stage, done: float) -> list[list[float]]:
    """Return the gates at half of the budget: all open before there are any, then as sharp as the stage has them."""
    gates = torch.ones(model.config.num_kept_heads)
    if stage != "dense":
        gates = model.gates.soft(HALF, 0.1**done) if stage == "soft" else model.gates.hard(HALF)
    rows: list[list[float]] = [[] for _ in model.config.heads]
    for (layer, _), gate in zip(positions(model.config.heads), gates.tolist(), strict=True):
        rows[layer].append(gate)
    return rows


def train(
    show: Callable[[Sight], None],
    model_settings: ModelSettings = MODEL,
    settings: TrainSettings = TRAINING,
    texts: int = TEXTS,
) -> BBAForSequenceClassification:
    """Train a small model of the teaching task through all stages, and return it.

    Args:
        show: hears what is seen, every `EVERY` steps.
        model_settings: shape of the model.
        settings: how it is trained.
        texts: number of training texts.
    """
    set_seed(settings.seed)
    disable_progress_bar()
    tokenizer = synthetic.synthetic_tokenizer()
    data = encode(simpler(few_things(texts, "live/train"), settings.seed), tokenizer)
    fresh = encode(few_things(FRESH, "live/fresh"), tokenizer)
    model = _first_model(model_settings, len(tokenizer))
    steps = {stage: planned_steps(settings, stage, texts)[0] for stage in STAGES}
    last = Sight("dense", 0, sum(steps.values()), 0.0, 0.0, [], [])
    for stage in STAGES:
        if stage == "soft":
            data = with_teacher(data, model)
            initialise_gates(model, data)
        watcher = Watcher(model, stage, last, fresh, show)
        _train_stage(stage, steps[stage], model, tokenizer, data, settings, watcher)
        last = watcher.last
    return model


def _train_stage(
    stage: Stage,
    steps: int,
    model: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    settings: TrainSettings,
    watcher: Watcher,
) -> None:
    """Train one stage in place; unlike `run_stage` it stores nothing, as a run is over before it is worth resuming."""
    set_trainable(model, stage, settings)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            learning_rate=getattr(settings, stage).learning_rate,
            per_device_train_batch_size=settings.batch_size,
            warmup_steps=min(100, max(1, steps // 10)),
            logging_steps=EVERY,
            save_strategy="no",
            seed=settings.seed,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            label_names=["labels"],
            dataloader_pin_memory=False,
        )
        collator = DataCollatorWithPadding(tokenizer)
        trainer = BudgetTrainer(model, stage, settings, args=arguments, train_dataset=data, data_collator=collator)
        trainer.remove_callback(ProgressBar)
        trainer.add_callback(watcher)
        trainer.train()
    model.eval()


def main() -> None:
    """Train, and print what is seen, a line each."""
    if hasattr(os, "nice"):
        os.nice(10)  # The app's visitors come first.
    torch.set_num_threads(1)
    train(lambda sight: print(json.dumps(asdict(sight)), flush=True))  # noqa: T201 - the lines are the result


if __name__ == "__main__":
    main()
