"""Latency: really pruned models and the dense one, timed in turn in one run, one measurement at a time."""

import datetime
import importlib.metadata
import logging
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from torch.utils.benchmark import Timer

from bba.backends import BACKENDS, TORCH, Variants, check_backend
from bba.errors import MeasureError
from bba.measure.report import Latency, LatencyRow
from bba.model import BBAConfig, SequenceClassifier, Setting
from bba.pruning.cost import USUAL_LENGTH, block_share, head_share, predicted_speedup
from bba.pruning.plan import Plan, everything, plan_at, without_attention
from bba.pruning.surgery import pruned_config

logger = logging.getLogger(__name__)

LOCK = Path(tempfile.gettempdir()) / "bba-measuring.lock"
MAX_WAIT_SECONDS = 300
SHORT_TRAINING = 180
"""Seconds of training up to which fewer rounds are timed at its end, so that it does not wait long for its report."""
FEW_ROUNDS = 7


@dataclass(frozen=True)
class LatencySettings:
    """On what latency is measured."""

    batch: int = 1
    """Texts per call."""
    length: int = USUAL_LENGTH
    """Tokens per text."""
    threads: int = 1
    """CPU threads."""
    rounds: int = 15
    """How often each model is timed; the median over the rounds is shown."""
    backends: tuple[str, ...] = (TORCH,)
    """What each model is run on; the dense model in torch is timed in any case."""

    def __post_init__(self) -> None:
        for backend in self.backends:
            check_backend(backend)
        for name in ("batch", "length", "threads", "rounds"):
            if getattr(self, name) < 1:
                raise MeasureError(f"--{name} is {getattr(self, name)}: give a whole number of at least 1.")


def usual_length(config: BBAConfig) -> int:
    """Return the length that is measured unless another is asked for: 64 tokens, or all that a model reads."""
    return min(LatencySettings().length, config.max_position_embeddings)


def rounds_after(seconds: float) -> int:
    """Return how many rounds are timed for the report of a model that was trained for so long."""
    return FEW_ROUNDS if seconds <= SHORT_TRAINING else LatencySettings().rounds


def cpu_name() -> str:
    """Return the processor's name as its maker gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def warn_of_waiting() -> None:
    """Say in the log that another measurement has to end first."""
    logger.warning("Another measurement is running; waiting for it to end.")


@contextmanager
def alone(waiting: Callable[[], None] = warn_of_waiting) -> Iterator[None]:
    """Hold the one place where measuring is allowed; if it is taken, say so and wait."""
    lock = FileLock(LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waiting()
        try:
            lock.acquire(timeout=MAX_WAIT_SECONDS)
        except Timeout:
            raise MeasureError(
                f"Another measurement has been running for over {MAX_WAIT_SECONDS} seconds: wait for it to end, "
                f"or delete {LOCK} if none is running."
            ) from None
    try:
        yield
    finally:
        lock.release()


def time_in_turn(
    models: Sequence[Callable[[Tensor], object]],
    vocab_size: int,
    settings: LatencySettings,
    progress: Callable[[float], None],
) -> np.ndarray:
    """Time every model in every round, in turn, after a warm-up; return milliseconds a call, shape (rounds, models).

    The models take turns so that a change of the machine's speed meets them all alike; the order turns round each time.
    They read token ids, shape (B, T), that are drawn from a vocabulary of this size.
    """
    ids = torch.randint(1, vocab_size, (settings.batch, settings.length))
    timers = [
        Timer("model(ids)", globals={"model": model, "ids": ids}, num_threads=settings.threads) for model in models
    ]
    times = np.empty((settings.rounds, len(models)))
    with torch.inference_mode():
        calls = max(1, round(0.02 / timers[0].timeit(5).mean))  # About 20 ms of the dense model at a time.
        for timer in timers:
            timer.timeit(max(2, calls // 4))
        for turn in range(settings.rounds):
            order = range(len(timers)) if turn % 2 == 0 else reversed(range(len(timers)))
            for place in order:
                times[turn, place] = timers[place].timeit(calls).mean * 1e3
            progress((turn + 1) / settings.rounds)
    return times


def interquartile_range(times: np.ndarray) -> float:
    """Return the distance between the quartiles of the times of several rounds; 0 for one round."""
    if len(times) < 2:
        return 0.0
    quarter, _, three_quarters = statistics.quantiles(times, n=4)
    return float(three_quarters - quarter)


def measure_latency(
    model: SequenceClassifier,
    asked: Sequence[Setting],
    settings: LatencySettings,
    progress: Callable[[float], None] = lambda done: None,
    waiting: Callable[[], None] = lambda: None,
    variants: Variants | None = None,
) -> Latency:
    """Measure the model as it is, the model pruned to each setting, and the ceiling: the model without attention.

    Args:
        model: the baseline, called dense here; in evaluation mode.
        asked: head and FFN budgets to prune it to; those that leave it as it is are its own row, which comes first.
        settings: batch, length, threads, rounds, and on which backends.
        progress: hears the share that is done, in [0, 1].
        waiting: called once if another measurement has to end first.
        variants: where what is made of the model is kept; None keeps it for this measurement only.

    Raises:
        MeasureError: the texts are longer than the model reads, or the wait was in vain.
        BudgetError: a budget that the model cannot serve.
    """
    if settings.length > model.config.max_position_embeddings:
        raise MeasureError(
            f"--length {settings.length} is more than the {model.config.max_position_embeddings} tokens this model "
            "reads: ask for fewer."
        )
    runs = _runs(model, asked, settings.backends)
    variants = variants or Variants(model)
    with alone(waiting):
        models = [variants.running(run.plan, run.backend, settings.threads) for run in runs]
        times = time_in_turn(models, model.config.vocab_size, settings, progress)
    return Latency(
        cpu=cpu_name(),
        threads=settings.threads,
        batch=settings.batch,
        length=settings.length,
        rounds=settings.rounds,
        torch=torch.__version__,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rows=[
            _row(run, pruned_config(model.config, run.plan), model.config, settings.length, times[:, [0, place]])
            for place, run in enumerate(runs)
        ],
        onnxruntime=importlib.metadata.version("onnxruntime") if {*settings.backends} - {TORCH} else None,
    )


class _Run(NamedTuple):
    """One of the models that take turns."""

    setting: Setting
    plan: Plan
    backend: str


def _runs(model: SequenceClassifier, asked: Sequence[Setting], backends: Sequence[str]) -> list[_Run]:
    """Return what is timed: the dense model in torch, then each setting and the ceiling, backend by backend."""
    whole = Setting(head_share(model.config), block_share(model.config))
    plans = {whole: everything(model.config)}
    plans |= {setting: plan_at(model, *setting) for setting in asked if setting not in (whole, (1.0, 1.0))}
    plans[Setting(0.0, whole.ffn_budget)] = without_attention(model.config)
    every = [_Run(*pair, backend) for backend in BACKENDS if backend in backends for pair in plans.items()]
    return list(dict.fromkeys([_Run(whole, plans[whole], TORCH), *every]))


def _row(run: _Run, config: BBAConfig, dense: BBAConfig, length: int, times: np.ndarray) -> LatencyRow:
    """Return the row of a run; `times` are those of dense in torch and of the run, shape (rounds, 2)."""
    return LatencyRow(
        budget=run.setting.budget,
        ffn_budget=run.setting.ffn_budget,
        heads=config.num_kept_heads,
        blocks=config.num_kept_blocks,
        median_ms=float(np.median(times[:, 1])),
        iqr_ms=interquartile_range(times[:, 1]),
        speedup=float(np.median(times[:, 0] / times[:, 1])),
        predicted_speedup=predicted_speedup(config, dense, length),
        backend=run.backend,
    )
