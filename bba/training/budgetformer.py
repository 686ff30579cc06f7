"""Training a BudgetFormer: from a dense warm start, exploration with soft noisy gates, then exploitation."""

from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import ExportableState

from bba.model import BBAForSequenceClassification, BudgetFormerForSequenceClassification, check_budget
from bba.model.budgetformer import BudgetFormerOutput, Exploration, heads_at
from bba.model.inference import pad
from bba.settings import TrainSettings
from bba.training.stages import initialise_gates, stage_arguments, train_to_the_end
from bba.training.trainer import BudgetTrainer

POLICY_LEARNING_RATE = 5e-3
"""Peak learning rate of what a policy says, which is fresh; its inner layer learns like the rest of the model."""
COST_WEIGHT = 20.0
"""Weight of the squared distance between the mean share of heads and its target."""
MEMORY = 0.95
"""How much of the running mean share of heads stays from one batch to the next. A batch holds texts of like length, so
that one batch's mean must be free to differ from the target."""
STARTING_TEXTS = 256
"""Training texts that show fresh policies how texts differ."""
NAMES: dict[Literal["soft", "hard"], str] = {"soft": "exploration", "hard": "exploitation"}
"""What the stages of `TrainSettings` are here."""


class RunningShare(TrainerCallback, ExportableState):
    """The mean share of heads over the last batches; saved and restored with the Trainer's state."""

    def __init__(self, share: float | None = None) -> None:
        self.share = share

    def add(self, share: float) -> float:
        """Return the mean with one more batch."""
        self.share = share if self.share is None else MEMORY * self.share + (1 - MEMORY) * share
        return self.share

    def state(self) -> dict[str, Any]:
        """Return what the Trainer stores."""
        return {"args": {"share": self.share}, "attributes": {}}


class BudgetFormerTrainer(BudgetTrainer):
    """Trainer of exploration or exploitation: the stages' Trainer with a cost term and gates that the policies shape.

    Args:
        model: the model to train.
        stage: "soft" explores, "hard" exploits.
        settings: of the whole run.
        target: mean share of the heads to reach, in (0, 1].
        trainer_arguments: transformers' own.
    """

    def __init__(
        self,
        model: BudgetFormerForSequenceClassification,
        stage: Literal["soft", "hard"],
        settings: TrainSettings,
        target: float,
        **trainer_arguments: Any,
    ) -> None:
        super().__init__(model, stage, settings, **trainer_arguments)  # type: ignore[arg-type]
        self.add_callback(RunningShare())
        self.progress.stage = NAMES[stage]
        self.policies = model.policies
        self.target = target

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make AdamW with the policies' outputs as a group of their own; see `POLICY_LEARNING_RATE`."""
        made = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        if not made:
            own = [parameter for name, parameter in self.policies.named_parameters() if ".inner." not in name]
            taken = set(own)
            for group in optimizer.param_groups:
                group["params"] = [parameter for parameter in group["params"] if parameter not in taken]
            optimizer.add_param_group({"params": own, "weight_decay": 0.0, "lr": POLICY_LEARNING_RATE})
        return optimizer

    def _gates(self) -> dict[str, Any]:
        """Fall from soft and noisy choices to greedy ones over the exploration; then stay there."""
        left = 1 - self.state.global_step / max(1, self.state.max_steps)
        noise = left if self.stage == "soft" else 0.0
        return {"exploration": Exploration(self._temperature(), noise, hard=self.stage == "hard")}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the loss of a batch, in training with the cost term; see `BudgetTrainer.compute_loss`."""
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        if model.training:
            loss = loss + self._cost(outputs)
        return (loss, outputs) if return_outputs else loss

    def _cost(self, outputs: BudgetFormerOutput) -> Tensor:
        """Return the weighted squared distance of the running mean share of heads from the target, a scalar.

        The share counts whole heads and has the budgets' gradient.
        """
        total = outputs.gates.shape[2]
        budgets = outputs.budgets.mean()
        share = (heads_at(outputs.budgets, total) / total).mean().detach()
        mean = self.callback(RunningShare).add(float(share))
        return COST_WEIGHT * (mean + budgets - budgets.detach() - self.target) ** 2


def train_policies(
    dense: BBAForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    taught: tuple[Dataset, Dataset],
    settings: TrainSettings,
    target: float,
    folder: Path,
) -> BudgetFormerForSequenceClassification:
    """Make a BudgetFormer of a dense model and train it: exploration, then exploitation, each resumable.

    Args:
        dense: the warm start; its gates are set to the order of importance.
        tokenizer: pads the batches.
        taught: training texts with the teacher's logits, from `with_teacher`, and validation texts.
        settings: of the whole run; its soft stage explores, its hard one exploits.
        target: mean share of the heads to reach, in (0, 1]; one head a layer is the floor.
        folder: holds the states.

    Raises:
        BudgetError: the target is no such share.
    """
    check_budget(target)
    initialise_gates(dense, taught[1])
    start = pad(taught[0]["input_ids"][:STARTING_TEXTS], dense.config.pad_token_id)
    model = BudgetFormerForSequenceClassification.from_dense(dense, target, *start)
    model.encoder.embeddings.requires_grad_(not settings.freeze_embeddings)
    for number, stage in enumerate(NAMES, start=2):
        model = _run(stage, model, tokenizer, taught[0], settings, target, folder / f"{number}-{NAMES[stage]}")
    return model


def _run(
    stage: Literal["soft", "hard"],
    model: BudgetFormerForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    train: Dataset,
    settings: TrainSettings,
    target: float,
    folder: Path,
) -> BudgetFormerForSequenceClassification:
    """Train one stage from its last saved state if there is one; a finished stage is only loaded."""
    done = folder / "done"
    if done.is_dir():
        return BudgetFormerForSequenceClassification.from_pretrained(done, dtype=torch.float32)
    trainer = BudgetFormerTrainer(
        model,
        stage,
        settings,
        target,
        args=stage_arguments(stage, settings, folder, len(train)),
        train_dataset=train,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    train_to_the_end(trainer, NAMES[stage], folder)
    return model.eval()
