"""The stages of training, each resumable: dense warm start, soft gates, hard gates."""

import json
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from safetensors import SafetensorError
from sklearn.metrics import accuracy_score
from torch import Tensor
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedTokenizerBase, TrainingArguments

from bba.data.texts import Split
from bba.errors import TrainingError
from bba.model import BBAForSequenceClassification, SequenceClassifier, Setting
from bba.model.inference import pad
from bba.pruning.importance import importance, per_cost, set_order
from bba.settings import TrainSettings
from bba.training.processes import join, share_of, shared_logits
from bba.training.trainer import BudgetTrainer, Clock, Stage

logger = logging.getLogger(__name__)

SECONDS = "seconds.txt"
_TORCH_CANNOT_WRITE = re.compile("PytorchStreamWriter|inline_container|iostream error")
IMPORTANCE_TEXTS = 512
"""Validation texts that the first order of heads and blocks is estimated on."""


def encode(split: Split, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return token ids and labels as a dataset."""
    ids = tokenizer(split.texts, truncation=True, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    return Dataset.from_dict({"input_ids": ids, "labels": split.labels})


def with_teacher(dataset: Dataset, teacher: SequenceClassifier) -> Dataset:
    """Add the dense model's logits for each text: computed once, as the texts do not change."""
    logits = shared_logits(teacher.eval(), dataset["input_ids"][:])
    return dataset.add_column("teacher_logits", logits.tolist())


def labelled_batches(dataset: Dataset, pad_token_id: int) -> list[dict[str, Tensor]]:
    """Return the first texts of a dataset one by one, as `importance` reads them."""
    rows = dataset.select(range(min(IMPORTANCE_TEXTS, len(dataset))))
    return [
        {"input_ids": pad([ids], pad_token_id)[0], "labels": torch.tensor([label])}
        for ids, label in zip(rows["input_ids"], rows["labels"], strict=True)
    ]


def initialise_gates(model: BBAForSequenceClassification, validation: Dataset, cost_weight: float = 0.0) -> None:
    """Put heads and feed-forward blocks in the order of their importance to the dense model, in place.

    Args:
        model: the trained dense model.
        validation: texts that importance is estimated on.
        cost_weight: see `TrainSettings.cost_weight`.
    """
    scores = importance(model, labelled_batches(validation, model.config.pad_token_id))
    set_order(model, per_cost(scores, model.config, cost_weight))


def last_state(folder: Path) -> Path | None:
    """Return the newest complete Trainer state in a folder; in one cut short, the file written last is not whole."""
    states = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json") if _is_json(path)]
    return max(states, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def planned_steps(settings: TrainSettings, stage: Stage, texts: int) -> tuple[int, int]:
    """Return the steps of a stage and how many lie between two saved states; the last state is saved at the end."""
    wanted = getattr(settings, stage).epochs * texts / settings.batch_size
    steps = max(settings.min_steps, math.ceil(wanted))
    saves = math.ceil(steps / settings.save_every)
    between = math.ceil(steps / saves)
    return between * saves, between


def stage_arguments(stage: Stage, settings: TrainSettings, folder: Path, texts: int) -> TrainingArguments:
    """Map our settings onto transformers' names; `texts` is the number of training texts."""
    dense = stage == "dense"
    steps, between = planned_steps(settings, stage, texts)
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=getattr(settings, stage).learning_rate,
        per_device_train_batch_size=share_of(settings.batch_size),
        per_device_eval_batch_size=128,
        warmup_steps=min(100, math.ceil(steps / 10)),
        lr_scheduler_type="linear",
        logging_steps=50,
        logging_nan_inf_filter=False,
        eval_strategy="steps" if dense else "no",
        eval_steps=between,
        save_strategy="steps",
        save_steps=between,
        save_total_limit=2,
        load_best_model_at_end=dense,
        metric_for_best_model="accuracy" if dense else None,
        seed=settings.seed,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=True,  # At a small budget whole layers are closed.
        restore_callback_states_from_checkpoint=True,
    )


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(accuracy_score(prediction.label_ids, np.argmax(prediction.predictions, axis=-1)))}


def set_trainable(model: BBAForSequenceClassification, stage: Stage, settings: TrainSettings) -> None:
    """Let a stage train what it is to train, in place: gates after the dense stage, embeddings unless frozen."""
    for gates in filter(None, (model.gates, model.ffn_gates)):
        gates.requires_grad_(stage != "dense")
    model.encoder.embeddings.requires_grad_(not settings.freeze_embeddings)


def run_stage(
    stage: Stage,
    model: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    data: tuple[Dataset, Dataset],
    settings: TrainSettings,
    folder: Path,
    fixed: Setting | None = None,
) -> BBAForSequenceClassification:
    """Train one stage, from its last saved state if there is one; a finished stage is only loaded.

    Args:
        stage: which gates are used.
        model: the model to train, changed in place.
        tokenizer: pads the batches.
        data: encoded training and validation texts.
        settings: of the whole run.
        folder: holds this stage's states, and `done` when it is over.
        fixed: the setting of every step, for a specialist; without it one is drawn at each step.
    """
    done = folder / "done"
    if done.is_dir():
        return BBAForSequenceClassification.from_pretrained(done, dtype=torch.float32)
    train, validation = data
    set_trainable(model, stage, settings)
    trainer = BudgetTrainer(
        model,
        stage,
        settings,
        fixed,
        args=stage_arguments(stage, settings, folder, len(train)),
        train_dataset=train,
        eval_dataset=validation,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=_accuracy,
    )
    train_to_the_end(trainer, stage, folder)
    return model.eval()


def train_to_the_end(trainer: BudgetTrainer, stage: str, folder: Path) -> None:
    """Train from the last saved state in `folder` if there is one, and put the model into `folder/done`."""
    resumed = last_state(folder)
    origin = f", going on from {resumed.name}" if resumed else ""
    logger.info("%s stage: %d steps%s", stage, trainer.args.max_steps, origin)
    with disk_errors_explained(stage, folder):
        try:
            trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        finally:
            trainer.progress.close()
        if trainer.is_world_process_zero():
            trainer.classifier.save_pretrained(folder / "writing")
            (folder / "writing" / SECONDS).write_text(f"{trainer.callback(Clock).seconds:.1f}", encoding="utf-8")
            (folder / "writing").rename(folder / "done")
        join().wait_for_everyone()


@contextmanager
def disk_errors_explained(stage: str, folder: Path) -> Iterator[None]:
    """Turn what is raised when a state cannot be written into one sentence; torch raises a bare RuntimeError."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _TORCH_CANNOT_WRITE.search(str(error)):
            raise
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TrainingError(
            f"The {stage} stage's state could not be written to {folder} ({reason}): make room, then add --resume."
        ) from error


def training_seconds(folder: Path) -> float:
    """Return how long the finished stages in a run's folder trained, stops not counted."""
    return sum(float(path.read_text(encoding="utf-8")) for path in folder.glob(f"*/done/{SECONDS}"))


def train_stages(
    model: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    data: tuple[Dataset, Dataset],
    settings: TrainSettings,
    folder: Path,
) -> BBAForSequenceClassification:
    """Run the three stages in `folder` and return the budgeted model; see `run_stage` for the arguments."""
    train, validation = data
    model = run_stage("dense", model, tokenizer, data, settings, folder / "1-dense")
    return gate_stages(model, tokenizer, (with_teacher(train, model), validation), settings, folder)


def gate_stages(
    model: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    taught: tuple[Dataset, Dataset],
    settings: TrainSettings,
    folder: Path,
    fixed: Setting | None = None,
) -> BBAForSequenceClassification:
    """Run the soft and the hard stage on a dense model, which is changed; see `run_stage` for the arguments.

    The training texts need the teacher's logits, from `with_teacher`.
    """
    initialise_gates(model, taught[1], settings.cost_weight)
    model = run_stage("soft", model, tokenizer, taught, settings, folder / "2-soft", fixed)
    return run_stage("hard", model, tokenizer, taught, settings, folder / "3-hard", fixed)
