"""One training in several processes, as `torchrun` and `accelerate launch` start them: who speaks, who takes what."""

import logging

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from bba.errors import TrainingError
from bba.model import SequenceClassifier
from bba.model.inference import logits_of


def join() -> PartialState:
    """Return which process this is, and of how many; a process that was started alone is the main one.

    Only the main process tells what it does.
    """
    state = PartialState(cpu=not torch.cuda.is_available())
    if not state.is_main_process:
        logging.disable(logging.WARNING)
    return state


def share_of(batch_size: int) -> int:
    """Return how many of a step's texts each process takes, so that a step is the same for any number of them.

    Raises:
        TrainingError: the texts cannot be shared equally.
    """
    processes = join().num_processes
    if batch_size % processes:
        raise TrainingError(
            f"--training.batch_size {batch_size} cannot be shared by {processes} processes: give a multiple of "
            f"{processes}."
        )
    return batch_size // processes


def shared_logits(model: SequenceClassifier, rows: list[list[int]]) -> Tensor:
    """Return the logits of token lists, as `logits_of` does; each process computes a part, and all get the whole."""
    state = join()
    with state.split_between_processes(rows) as own:
        logits = logits_of(model, own)
    return logits if state.num_processes == 1 else torch.tensor(gather_object(logits.tolist()))
