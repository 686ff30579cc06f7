"""A comparison: every method's models of one seed, trained, cut, scored on the same texts and timed in one run."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from torch import Tensor

from bba.measure.latency import LatencySettings, alone, cpu_name, interquartile_range, time_in_turn, usual_length
from bba.measure.metrics import score_answers
from bba.measure.results import OURS, WHOLE, ResultRow
from bba.model import BBAConfig, Setting
from bba.model.inference import logits_of
from bba.model.packed import PackedClassifier
from bba.pruning.cost import flops, parameters
from bba.training.baselines import Contestants

logger = logging.getLogger(__name__)

ALL = Setting(1.0, 1.0)
INT8 = "int8"


@dataclass(frozen=True)
class Entry:
    """One model in the comparison."""

    method: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.method}-{str(self.setting).replace(':', '-')}"


def entries(methods: Sequence[str], settings: Sequence[Setting]) -> list[Entry]:
    """Return what is compared: the dense model first, as the others are timed against it, then the budgeted one.

    Both are there whatever is asked for; the dense model whole only, the budgeted one whole too.
    """
    others = [method for method in methods if method not in ("dense", OURS)]
    result = [Entry("dense", ALL), *(Entry(OURS, setting) for setting in (ALL, *settings))]
    return result + [
        Entry(method, setting) for method in others for setting in ([ALL] if method in WHOLE else settings)
    ]


def compare_seed(
    contestants: Contestants, wanted: Sequence[Entry], data: tuple[Dataset, Dataset], names: tuple[str, str]
) -> list[ResultRow]:
    """Return one row for each entry; what was trained and scored before is not done again.

    Args:
        contestants: the models of this seed.
        wanted: from `entries`.
        data: encoded validation and test texts.
        names: of the task and of the backbone.
    """
    folder = contestants.folder / "scored"
    folder.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(wanted, start=1):
        if not (folder / f"{entry}.json").exists():
            logger.info("seed %d, %d of %d: %s", contestants.settings.seed, number, len(wanted), entry)
            _write(folder / f"{entry}.json", _score(contestants, entry, data))
    scored = {entry: json.loads((folder / f"{entry}.json").read_text(encoding="utf-8")) for entry in wanted}
    timed = _times(contestants, wanted, folder.with_name("times.json"))
    labels = np.asarray(data[1]["labels"])
    right = {entry: np.asarray(values["answers"]) == labels for entry, values in scored.items()}
    shared: dict[str, Any] = {"task": names[0], "backbone": names[1], "seed": contestants.settings.seed}
    shared |= {"test_texts": len(labels), "training_texts": len(contestants.data[0])}
    return [
        ResultRow(
            **shared,
            method=entry.method,
            **entry.setting._asdict(),
            **scored[entry]["values"],
            **_discordant(right[Entry(OURS, entry.setting)], right[entry]),
            **timed[str(entry)],
        )
        for entry in wanted
    ]


def _score(contestants: Contestants, entry: Entry, data: tuple[Dataset, Dataset]) -> dict[str, Any]:
    """Return a model's test answers, and of its result row all but times and comparison."""
    model = contestants.model("dense" if entry.method == INT8 else entry.method, entry.setting)
    run = contestants.int8().logits_of if entry.method == INT8 else partial(logits_of, model)
    validation, test = (run(split["input_ids"]).argmax(dim=-1).numpy() for split in data)
    row = asdict(score_answers(model.config, test, data[1]["labels"]))
    kept = ("heads", "blocks", "cost", "encoder_cost", "accuracy", "accuracy_low", "accuracy_high", "macro_f1")
    values = {name: row[name] for name in kept}
    values["validation_accuracy"] = float((validation == np.asarray(data[0]["labels"])).mean())
    values["flops"] = flops(model.config, usual_length(model.config)).total
    values["parameters"] = parameters(model.config).total
    spent = contestants.training(entry.method, entry.setting)
    values |= {"examples_seen": spent.examples, "training_seconds": spent.seconds}
    return {"answers": test.tolist(), "values": values | {"shared_seconds": spent.shared_seconds}}


def _discordant(ours: np.ndarray, this: np.ndarray) -> dict[str, Any]:
    return {"only_ours": int((ours & ~this).sum()), "only_this": int((this & ~ours).sum())}


def _times(contestants: Contestants, wanted: Sequence[Entry], path: Path) -> dict[str, dict[str, Any]]:
    """Return latency and speed-up by entry, all taken in one run; measured anew where an entry is missing."""
    names = [str(entry) for entry in wanted]
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if set(names) <= set(stored):
        return stored
    logger.info("seed %d: timing %d models in turn", contestants.settings.seed, len(wanted))
    models = [contestants.model("dense" if entry.method == INT8 else entry.method, entry.setting) for entry in wanted]
    runs = [
        contestants.int8() if entry.method == INT8 else PackedClassifier(model)
        for entry, model in zip(wanted, models, strict=True)
    ]
    measured = _measure(runs, models[0].config)
    _write(path, dict(zip(names, measured, strict=True)))
    return dict(zip(names, measured, strict=True))


def _measure(models: Sequence[Callable[[Tensor], Any]], config: BBAConfig) -> list[dict[str, Any]]:
    settings = LatencySettings(length=usual_length(config))
    with alone(lambda: logger.warning("Another measurement is running; waiting for it to end.")):
        times = time_in_turn(models, config.vocab_size, settings, lambda done: None)
    return [
        {
            "median_ms": float(np.median(times[:, place])),
            "iqr_ms": interquartile_range(times[:, place]),
            "speedup": float(np.median(times[:, 0] / times[:, place])),
            "cpu": cpu_name(),
            **{name: getattr(settings, name) for name in ("batch", "length", "threads", "rounds")},
        }
        for place in range(len(models))
    ]


def _write(path: Path, values: dict[str, Any]) -> None:
    temporary = path.with_suffix(".writing")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.rename(path)
