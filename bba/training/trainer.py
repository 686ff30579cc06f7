"""One training stage: transformers' Trainer with a budget drawn at every step."""

import random
import sys
import time
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from tqdm import tqdm
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import get_length_grouped_indices

from bba.errors import TrainingError
from bba.model import BBAForSequenceClassification, BudgetGates, Setting
from bba.settings import TrainSettings
from bba.training.losses import distillation_loss
from bba.training.progress import ProgressFile

Stage = Literal["dense", "soft", "hard"]
_Callback = TypeVar("_Callback", bound=TrainerCallback)


def draw_setting(settings: TrainSettings, stage: Stage, step: int) -> Setting:
    """Return the budgets of a step: a function of seed, stage and step alone, so that a resumed run draws the same.

    Without an FFN dial uniform over [min_budget, 1]. With one the logarithm is uniform, as what is cut twice loses more
    and needs more training: a quarter of the draws cut heads alone, half of them both parts alike, a quarter both
    independently. In the hard stage some steps train the dense model and every fourth the smallest, the "sandwich" of
    slimmable networks (Yu and Huang 2019, arXiv 1903.05134).
    """
    smallest = settings.min_budget
    if stage == "hard" and step % (8 if settings.ffn else 4) == 0:
        return Setting(1.0, 1.0)
    if stage == "hard" and step % 4 == 2:
        return Setting(smallest, smallest if settings.ffn else 1.0)
    random_of_step = random.Random(f"{settings.seed}/{stage}/{step}")
    if not settings.ffn:
        return Setting(random_of_step.uniform(smallest, 1.0))
    budget, other = (smallest ** random_of_step.random() for _ in range(2))
    return Setting(budget, random_of_step.choice([1.0, budget, budget, other]))


class Clock(TrainerCallback, ExportableState):
    """Adds up the seconds a stage trains, over all its starts: saved and restored with the Trainer's state."""

    def __init__(self, before: float = 0.0) -> None:
        self.before = before
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds trained so far."""
        return self.before + time.monotonic() - self.started

    def state(self) -> dict[str, Any]:
        """Return what the Trainer stores."""
        return {"args": {"before": self.seconds}, "attributes": {}}


class ProgressBar(TrainerCallback):
    """One quiet bar a stage, on standard error: transformers' own prints every log to standard output."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.figures: dict[str, float] = {}
        self.bar: tqdm | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Draw the bar, at the step where a resumed run goes on."""
        self.bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            desc=f"{self.stage} stage",
            file=sys.stderr,
            disable=not state.is_world_process_zero,
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Show the newest loss, and the newest accuracy on validation."""
        shown = {"loss": "loss", "eval_accuracy": "validation accuracy"}
        self.figures.update({shown[name]: value for name, value in (logs or {}).items() if name in shown})
        if self.bar is not None:
            self.bar.set_postfix({name: f"{value:.4f}" for name, value in self.figures.items()})

    def close(self) -> None:
        """Leave the bar as it is; what is printed next starts a line of its own."""
        if self.bar is not None:
            self.bar.close()


class LengthGrouped(Sampler[int]):
    """Texts of like length next to each other, in an order that depends on seed and epoch alone."""

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = lengths, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the data loader calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, generator=generator))


class BudgetTrainer(Trainer):
    """Trainer of one stage; everything but the gates, the loss and the data order is transformers' own."""

    def __init__(
        self,
        model: BBAForSequenceClassification,
        stage: Stage,
        settings: TrainSettings,
        fixed: Setting | None = None,
        **trainer_arguments: Any,
    ) -> None:
        self.progress = ProgressBar(stage)
        super().__init__(model=model, callbacks=[Clock(), self.progress, ProgressFile()], **trainer_arguments)
        self.remove_callback(PrinterCallback)
        self.classifier = model
        self.stage = stage
        self.settings = settings
        self.fixed = fixed

    def callback(self, kind: type[_Callback]) -> _Callback:
        """Return the Trainer's callback of a kind: a resumed Trainer has made itself a new one."""
        return next(one for one in self.callback_handler.callbacks if isinstance(one, kind))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        lengths = [len(ids) for ids in self.train_dataset["input_ids"]]  # type: ignore[index]
        return LengthGrouped(lengths, self.settings.batch_size, self.settings.seed)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make AdamW with the gates' scores as a group of their own: they live on another scale than the weights."""
        if self.optimizer is None:
            decayed = set(self.get_decay_parameter_names(self.classifier))
            groups: dict[str, list[nn.Parameter]] = {"decayed": [], "plain": [], "scores": []}
            for name, parameter in self.classifier.named_parameters():
                if parameter.requires_grad:
                    kind = "scores" if name.endswith("gates.scores") else "decayed" if name in decayed else "plain"
                    groups[kind].append(parameter)
            self.optimizer = torch.optim.AdamW(
                [
                    {"params": groups["decayed"], "weight_decay": self.settings.weight_decay},
                    {"params": groups["plain"], "weight_decay": 0.0},
                    {"params": groups["scores"], "weight_decay": 0.0, "lr": self.settings.score_learning_rate},
                ],
                lr=self.args.learning_rate,
            )
        return self.optimizer

    def _temperature(self) -> float:
        """Fall from 1 to 0.1 over the soft stage, so that soft gates end close to hard ones."""
        if self.stage == "hard":
            return 0.1
        return float(0.1 ** (self.state.global_step / max(1, self.state.max_steps)))

    def _gates(self) -> dict[str, Any]:
        if self.stage == "dense":
            return {}
        setting = self.fixed or draw_setting(self.settings, self.stage, self.state.global_step)
        model = self.classifier
        return {
            "head_gates": self._open(model.gates, setting.budget),
            "ffn_gates": self._open(model.ffn_gates, setting.ffn_budget) if model.ffn_gates is not None else None,
        }

    def _open(self, gates: BudgetGates, budget: float) -> Tensor:
        shape = gates.soft if self.stage == "soft" else gates.straight_through
        return shape(budget, self._temperature())

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the loss of a batch at this step's budget; evaluation is at budget 1.

        Raises:
            TrainingError: the loss is not a finite number.
        """
        teacher = inputs.pop("teacher_logits", None)
        gates = self._gates() if model.training else {}
        outputs = model(**inputs, **gates)
        loss = outputs.loss
        if teacher is not None and model.training:
            weight, temperature = self.settings.distill_weight, self.settings.distill_temperature
            loss = distillation_loss(outputs.logits, inputs["labels"], teacher, weight, temperature)
        if model.training and not torch.isfinite(loss):
            raise TrainingError(
                f"The loss of the {self.stage} stage is not a number at step {self.state.global_step}: lower the "
                f"learning rate (it is {self.args.learning_rate:g}), then start anew; the last good state is in "
                f"{self.args.output_dir}."
            )
        return (loss, outputs) if return_outputs else loss
