"""A live training seen from outside: the process that it runs in, and what it tells line by line.

What it trains is in `bba.training.live`, which takes seconds to import; this room does not.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bba.data import synthetic
from bba.settings import ModelSettings

MODEL = ModelSettings(
    hidden_size=64, layers=2, heads=4, ffn_size=128, max_length=synthetic.MAX_LENGTH, dropout=0.0, token_dropout=0.0
)
FRESH = 200
"""Fresh texts on which accuracy is measured again and again."""
EVERY = 50
"""Training steps between two looks."""
LIMIT_SECONDS = 300
"""A run that is not over by then is ended: the machine has other things to do."""


@dataclass(frozen=True)
class Sight:
    """What is seen of the training at one moment."""

    stage: str
    """dense, soft or hard."""
    step: int
    """Steps done, over all stages."""
    steps: int
    """Steps of all stages together."""
    seconds: float
    """Since the training began, the loading of libraries not counted."""
    loss: float
    """Mean training loss since the last look."""
    accuracy: list[float]
    """On fresh texts, with one head open, with two, and so on up to all: really pruned models."""
    gates: list[list[float]]
    """How open each head is at half of the budget, layer by layer, in [0, 1]."""


@dataclass(frozen=True)
class View:
    """What a run looks like from outside."""

    number: int = 0
    """Counts the runs; 0 before the first."""
    ending: Literal["running", "finished", "stopped", "overdue", "failed"] | None = None
    """None before the first run; overdue: ended because it took too long."""
    sights: tuple[Sight, ...] = ()

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.ending == "running"


class LiveRun:
    """One training at a time, in a process of its own, and what was seen of it. Any thread may ask.

    Args:
        command: what to run; it prints a `Sight` as JSON a line.
        limit_seconds: after which a run is ended.
    """

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-m", "bba.training.live"),
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._command = command
        self._limit_seconds = limit_seconds
        self._lock = threading.Lock()
        self._view = View()
        self._process: subprocess.Popen[str] | None = None

    def view(self) -> View:
        """Return what is seen of the run that goes on, or went on last."""
        with self._lock:
            return self._view

    def start(self) -> int | None:
        """Start a run and return its number; None if one goes on already."""
        with self._lock:
            if self._view.running:
                return None
            root = Path(__file__).parents[2]  # From where the package can be imported, be it installed or not.
            process = subprocess.Popen(self._command, cwd=root, stdout=subprocess.PIPE, text=True)
            self._process, self._view = process, View(self._view.number + 1, "running")
        threading.Thread(target=self._follow, args=(process,), daemon=True).start()
        return self._view.number

    def stop(self, ending: Literal["stopped", "overdue"] = "stopped") -> None:
        """End the run that goes on, if there is one, and say why."""
        with self._lock:
            if self._view.running and self._process is not None:
                self._view = replace(self._view, ending=ending)
                self._process.terminate()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        """Take in what a run tells until it ends."""
        limit = threading.Timer(self._limit_seconds, self.stop, ["overdue"])
        limit.start()
        with process:
            for line in process.stdout or ():
                sight = Sight(**json.loads(line))
                with self._lock:
                    self._view = replace(self._view, sights=(*self._view.sights, sight))
        limit.cancel()
        with self._lock:
            if self._view.running:
                self._view = replace(self._view, ending="failed" if process.returncode else "finished")
