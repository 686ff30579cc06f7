"""How far a run is, in a small file beside its states, for programs that watch it."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from bba.training.runs import write_whole

PROGRESS = "progress.json"
SECONDS_BETWEEN = 1.0
"""A watcher looks no more often than that, so the file is not written more often."""


@dataclass
class Progress:
    """How far a stage is."""

    step: int
    """Steps done, those before a stop included."""
    steps: int
    """Steps of the stage."""
    seconds_per_step: float | None = None
    """Mean since the stage was last started; None before its first step."""
    loss: float | None = None
    """The newest mean training loss."""
    accuracy: float | None = None
    """The newest accuracy on validation, in [0, 1]; measured in the dense stage only."""


def read_progress(folder: Path) -> Progress | None:
    """Return how far the stage of this folder is; None where none was started."""
    path = folder / PROGRESS
    return Progress(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


class ProgressFile(TrainerCallback):
    """Keeps the file of a stage; it changes nothing about the training."""

    def __init__(self) -> None:
        self.progress = Progress(0, 0)
        self.first_step = 0
        self.started = self.written = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Write the step that the stage starts or goes on from."""
        self.first_step, self.started = state.global_step, time.monotonic()
        self._write(args, state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Write the step, unless the last one was written just now."""
        if state.global_step == state.max_steps or time.monotonic() - self.written >= SECONDS_BETWEEN:
            self._write(args, state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Remember the newest figures."""
        logs = logs or {}
        self.progress.loss = logs.get("loss", self.progress.loss)
        self.progress.accuracy = logs.get("eval_accuracy", self.progress.accuracy)

    def _write(self, args: TrainingArguments, state: TrainerState) -> None:
        if not state.is_world_process_zero or args.output_dir is None:
            return
        self.written = time.monotonic()
        self.progress.step, self.progress.steps = state.global_step, state.max_steps
        done = state.global_step - self.first_step
        self.progress.seconds_per_step = (self.written - self.started) / done if done else None
        folder = Path(args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / PROGRESS, json.dumps(asdict(self.progress)))
