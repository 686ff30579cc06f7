"""What a visitor looks at, and the app's only caches; what hangs on a checkpoint is keyed by its folder and stamp."""

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import streamlit as st
import torch
from filelock import FileLock, Timeout

from bba.data import synthetic
from bba.errors import BBAError, CheckpointError
from bba.measure import latency as measuring
from bba.measure.latency import LatencySettings, measure_latency
from bba.measure.metrics import wilson
from bba.measure.report import BudgetRow, Latency, Report
from bba.measure.results import read_results
from bba.model import Setting
from bba.model.backbones import MINI
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier

FAVOURITE = "agnews-word"
"""The checkpoint that is shown first, if it is there."""
FRESH = 2_000
"""Fresh examples of the teaching task on which accuracy is measured live."""
DEFAULT = 0.5
"""The head budget that is shown first."""
MAX_MEASURED = 512
MAX_LOADED = 6
"""Checkpoints in memory at a time; the largest that the project ships takes some 100 MB."""


@dataclass(frozen=True)
class Choice:
    """A checkpoint and a setting of its dials."""

    folder: Path
    stamp: int
    """See `stamp_of`: a checkpoint that was trained again is another one."""
    classifier: BudgetedClassifier
    setting: Setting

    @property
    def report(self) -> Report:
        """What was measured when the checkpoint was trained."""
        return _report(self.classifier, self.folder)

    @property
    def row(self) -> BudgetRow:
        """The test row of the setting."""
        return self.report.row(*self.setting)

    @property
    def settings(self) -> list[Setting]:
        """The settings that were measured and that the checkpoint still serves, ascending."""
        return served(self.classifier, self.report)

    @property
    def stops(self) -> list[float]:
        """The head budgets among them at the setting's FFN budget, ascending."""
        return [setting.budget for setting in self.settings if setting.ffn_budget == self.setting.ffn_budget]

    def at(self, setting: Setting) -> "Choice":
        """Return the same checkpoint at another setting."""
        return replace(self, setting=setting)


def checkpoints_root() -> Path:
    """Return the folder of checkpoints: BBA_CHECKPOINTS, or `checkpoints` beside app.py."""
    return Path(os.environ.get("BBA_CHECKPOINTS") or Path(__file__).parents[2] / "checkpoints")


def candidate_folders(root: Path) -> list[Path]:
    """Return all folders in `root` but hidden ones, those of runs that are not finished, and that of encoders."""
    if not root.is_dir():
        return []
    folders = (path for path in root.iterdir() if path.is_dir() and path.name != MINI.parent.name)
    return sorted(path for path in folders if not path.name.startswith(".") and path.suffix != ".training")


def stamp_of(folder: Path) -> int:
    """Return a number that changes when a file of a folder changes: from names, sizes and times of change."""
    stats = ((path.name, path.stat()) for path in folder.iterdir())
    return hash(tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)))


def served(classifier: BudgetedClassifier, report: Report) -> list[Setting]:
    """Return the measured settings that a classifier serves, ascending."""
    config = classifier.checkpoint.model.config
    rows = (row for row in report.test if row.heads <= config.num_kept_heads and row.blocks <= config.num_kept_blocks)
    return sorted(row.setting for row in rows)


def _report(classifier: BudgetedClassifier, folder: Path) -> Report:
    if classifier.report is None:
        raise CheckpointError(
            f"{folder.name} has no report.json and the app shows only what was measured: make the checkpoint with "
            "`python -m bba train` or `python -m bba prune`, which write one."
        )
    return classifier.report


@st.cache_data(max_entries=64, show_spinner="Looking through the checkpoints…")
def problem(folder: Path, stamp: int) -> str | None:
    """Return in a sentence why a checkpoint cannot be used, or None if it can."""
    try:
        classifier = _classifier(folder, stamp)
        if not served(classifier, _report(classifier, folder)):
            return f"{folder.name} was measured at no budget that it serves: measure it again."
    except BBAError as error:
        return str(error)
    return None


@st.cache_resource(max_entries=MAX_LOADED, show_spinner="Loading the model…")
def _classifier(folder: Path, stamp: int) -> BudgetedClassifier:
    torch.set_num_threads(1)  # The models are small, and visitors share the processor.
    classifier = BudgetedClassifier.from_pretrained(folder)
    gc.freeze()  # Or each full collection walks all that the libraries hold, and everybody waits for 0.3 s.
    return classifier


def choose(folder: Path) -> Choice:
    """Return a checkpoint at its default: only attention is cut, to half the heads or the measured budget below.

    Raises:
        CheckpointError: the checkpoint cannot be used.
    """
    stamp = stamp_of(folder)
    classifier = _classifier(folder, stamp)
    settings = served(classifier, _report(classifier, folder))
    most = max(setting.ffn_budget for setting in settings)
    budgets = [setting.budget for setting in settings if setting.ffn_budget == most]
    return Choice(folder, stamp, classifier, Setting(nearest(DEFAULT, budgets), most))


def nearest(wanted: float, stops: Sequence[float]) -> float:
    """Return the largest stop that is no more than what is wanted, or else the smallest there is."""
    return max((stop for stop in stops if stop <= wanted), default=min(stops))


@st.cache_data(max_entries=64, show_spinner=False)
def _answers(_choice: Choice, folder: Path, stamp: int, ffn_budget: float, text: str) -> pd.DataFrame:
    classifier = _choice.classifier
    ids = classifier.encode([text])[0].ids
    rows = []
    for stop in _choice.stops:
        shares = logits_of(classifier.at(stop, ffn_budget), [ids]).softmax(dim=-1)[0].tolist()
        rows += [(stop, label, share) for label, share in zip(classifier.labels, shares, strict=True)]
    return pd.DataFrame(rows, columns=["budget", "label", "probability"])


def answers(choice: Choice, text: str) -> pd.DataFrame:
    """Return the probability of each label at every measured head budget, the FFN budget being the choice's.

    Its columns are budget, label, probability.
    """
    return _answers(choice, choice.folder, choice.stamp, choice.setting.ffn_budget, text)


@st.cache_resource(show_spinner=False)
def _measured() -> dict[tuple[object, ...], object]:
    return {}


def _remember(key: tuple[object, ...], value: object) -> None:
    measured = _measured()
    measured[key] = value
    while len(measured) > MAX_MEASURED:
        measured.pop(next(iter(measured)))


def _latency_key(choice: Choice, settings: LatencySettings, asked: Sequence[Setting]) -> tuple[object, ...]:
    return ("latency", choice.folder, choice.stamp, settings, tuple(asked))


def known_latency(choice: Choice, settings: LatencySettings, asked: Sequence[Setting]) -> Latency | None:
    """Return what was measured since the server started, for any visitor; None if it was not."""
    return _measured().get(_latency_key(choice, settings, asked))  # type: ignore[return-value]


def live_latency(
    choice: Choice,
    settings: LatencySettings,
    asked: Sequence[Setting],
    progress: Callable[[float], None],
    waiting: Callable[[], None],
) -> Latency:
    """Measure latency here and now, and remember it.

    Args:
        choice: the checkpoint; its own setting does not count.
        settings: on what to measure.
        asked: what to measure beside dense and the ceiling.
        progress: hears the share that is done.
        waiting: called again and again while another measurement has to end first.

    Raises:
        MeasureError: see `measure_latency`.
    """
    model = choice.classifier.checkpoint.model
    variants = choice.classifier.variants
    latency = measure_latency(model, asked, settings, progress, lambda: _wait(waiting), variants)
    _remember(_latency_key(choice, settings, asked), latency)
    return latency


def _wait(waiting: Callable[[], None]) -> None:
    """Wait until nobody measures; each call of `waiting` lets Streamlit end this run when the visitor moves on."""
    lock = FileLock(measuring.LOCK)
    while True:
        waiting()
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            continue
        lock.release()
        return


@st.cache_resource(max_entries=4, show_spinner=False)
def _fresh_examples(_choice: Choice, folder: Path, stamp: int) -> tuple[list[list[int]], list[int]]:
    split = synthetic.synthetic_split(FRESH, "app")
    return [encoded.ids for encoded in _choice.classifier.encode(split.texts)], split.labels


def fresh_accuracy(choice: Choice, progress: Callable[[float], None]) -> tuple[float, float, float]:
    """Return accuracy and its interval on fresh examples of the teaching task, measured once for each choice."""
    key = ("accuracy", choice.folder, choice.stamp, choice.setting)
    if key not in _measured():
        rows, labels = _fresh_examples(choice, choice.folder, choice.stamp)
        correct, model = 0, choice.classifier.at(*choice.setting)
        for start in range(0, FRESH, 200):
            progress(start / FRESH)
            part = slice(start, start + 200)
            correct += int((logits_of(model, rows[part]).argmax(dim=-1) == torch.tensor(labels[part])).sum())
        _remember(key, (correct / FRESH, *wilson(correct, FRESH)))
    return _measured()[key]  # type: ignore[return-value]


def results_root() -> Path:
    """Return the folder of results of comparisons: BBA_RESULTS, or `docs/results` beside app.py."""
    return Path(os.environ.get("BBA_RESULTS") or Path(__file__).parents[2] / "docs" / "results")


def results_files(root: Path) -> list[Path]:
    """Return all results files in `root` but hidden ones, by name."""
    return sorted(path for path in root.glob("*.csv") if path.is_file() and not path.name.startswith("."))


def results(path: Path) -> pd.DataFrame | str:
    """Return the rows of a results file, or in a sentence why it cannot be used."""
    stat = path.stat()
    return _results(path, (stat.st_size, stat.st_mtime_ns))


@st.cache_data(max_entries=64, show_spinner=False)
def _results(path: Path, stamp: tuple[int, int]) -> pd.DataFrame | str:
    try:
        return read_results(path)
    except BBAError as error:
        return str(error)
