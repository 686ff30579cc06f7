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
from bba.measure.memory import peak_bytes
from bba.measure.metrics import quality_of, score_answers
from bba.measure.results import HEADS_ALONE, OURS, PER_TEXT, WHOLE, ResultRow
from bba.measure.walltime import BATCHES, TIMED_TEXTS, Rows, Run, time_over_texts
from bba.model import Setting
from bba.model.inference import logits_of
from bba.model.packed import PackedClassifier
from bba.pruning.cost import flops, parameters
from bba.training.baselines import Contestants

logger = logging.getLogger(__name__)

ALL = Setting(1.0, 1.0)
INT8 = "int8"
QUALITY = ("accuracy", "accuracy_low", "accuracy_high", "macro_f1")
"""What a result row keeps of a model's `Quality`."""


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
        Entry(method, setting)
        for method in others
        for setting in ([ALL] if method in WHOLE else settings)
        if setting.ffn_budget == 1 or method not in HEADS_ALONE
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
    same_for_all = [entry for entry in wanted if entry.method not in PER_TEXT]
    timed = _once(folder.with_name("times.json"), same_for_all, partial(_latencies, contestants))
    untimed = timed[str(wanted[0])] | dict.fromkeys(("median_ms", "iqr_ms", "speedup"), float("nan"))
    texts = data[0]["input_ids"][:TIMED_TEXTS]
    walls = _once(folder.with_name("walls.json"), wanted, partial(_wall_times, contestants, texts))
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
            **timed.get(str(entry), untimed),
            **walls[str(entry)],
        )
        for entry in wanted
    ]


def _score(contestants: Contestants, entry: Entry, data: tuple[Dataset, Dataset]) -> dict[str, Any]:
    """Return a model's test answers, and of its result row all but times and comparison."""
    score = _score_per_text if entry.method in PER_TEXT else _score_pruned
    test, values = score(contestants, entry, data)
    spent = contestants.training(entry.method, entry.setting)
    values |= {"examples_seen": spent.examples, "training_seconds": spent.seconds}
    return {"answers": test.tolist(), "values": values | {"shared_seconds": spent.shared_seconds}}


def _score_pruned(
    contestants: Contestants, entry: Entry, data: tuple[Dataset, Dataset]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return test answers and values of a model that is the same for all texts."""
    model = contestants.model("dense" if entry.method == INT8 else entry.method, entry.setting)
    run = contestants.int8().logits_of if entry.method == INT8 else partial(logits_of, model)
    validation, test = (run(split["input_ids"]).argmax(dim=-1).numpy() for split in data)
    row = asdict(score_answers(model.config, test, data[1]["labels"]))
    values = {name: row[name] for name in ("heads", "blocks", "cost", "encoder_cost", *QUALITY)}
    values["validation_accuracy"] = float((validation == np.asarray(data[0]["labels"])).mean())
    values["flops"] = flops(model.config, usual_length(model.config)).total
    values["parameters"] = parameters(model.config).total
    return test, values


def _score_per_text(
    contestants: Contestants, entry: Entry, data: tuple[Dataset, Dataset]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return test answers and values of a method that spends on each text what it needs."""
    method = contestants.per_text(entry.method, entry.setting)
    config = method.model.config
    validation, test = (method.spent(split["input_ids"], usual_length(config)) for split in data)
    quality = asdict(quality_of(test.answers, data[1]["labels"], len(config.labels)))
    values = {name: quality[name] for name in QUALITY}
    values |= {name: getattr(test, name) for name in ("heads", "blocks", "encoder_cost", "flops")}
    values["cost"] = test.heads / config.num_dense_heads
    values["validation_accuracy"] = float((validation.answers == np.asarray(data[0]["labels"])).mean())
    values["parameters"] = sum(parameter.numel() for parameter in method.model.parameters())
    return test.answers, values


def _discordant(ours: np.ndarray, this: np.ndarray) -> dict[str, Any]:
    return {"only_ours": int((ours & ~this).sum()), "only_this": int((this & ~ours).sum())}


def _once(
    path: Path, wanted: Sequence[Entry], measure: Callable[[Sequence[Entry]], list[dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Return what is measured of entries, by name, all in one run; measured anew where an entry is missing."""
    names = [str(entry) for entry in wanted]
    stored: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not set(names) <= set(stored):
        stored = dict(zip(names, measure(wanted), strict=True))
        _write(path, stored)
    return stored


def _latencies(contestants: Contestants, wanted: Sequence[Entry]) -> list[dict[str, Any]]:
    """Time the entries on drawn token ids, and compare with the first, which is the dense model."""
    logger.info("seed %d: timing %d models in turn", contestants.settings.seed, len(wanted))
    models = [contestants.model("dense" if entry.method == INT8 else entry.method, entry.setting) for entry in wanted]
    runs: list[Callable[[Tensor], Any]] = [
        contestants.int8() if entry.method == INT8 else PackedClassifier(model)
        for entry, model in zip(wanted, models, strict=True)
    ]
    settings = LatencySettings(length=usual_length(models[0].config))
    with alone():
        times = time_in_turn(runs, models[0].config.vocab_size, settings, lambda done: None)
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


def _wall_times(contestants: Contestants, rows: Rows, wanted: Sequence[Entry]) -> list[dict[str, Any]]:
    """Time the entries on real texts, one by one and in batches; what chooses for each text does so in that time."""
    logger.info("seed %d: timing %d models on real texts", contestants.settings.seed, len(wanted))
    runs = [_run_of(contestants, entry) for entry in wanted]
    with alone():
        times = {f"wall_ms_{batch}": np.median(time_over_texts(runs, rows, batch), axis=0) for batch in BATCHES}
    memory = [
        float("nan") if entry.method == INT8 else peak_bytes(partial(run, rows, BATCHES[-1]))
        for entry, run in zip(wanted, runs, strict=True)
    ]
    return [
        {name: float(medians[place]) for name, medians in times.items()} | {"peak_bytes": memory[place]}
        for place in range(len(wanted))
    ]


def _run_of(contestants: Contestants, entry: Entry) -> Run:
    if entry.method in PER_TEXT:
        return contestants.per_text(entry.method, entry.setting)
    if entry.method == INT8:
        return contestants.int8().logits_of
    return partial(logits_of, contestants.model(entry.method, entry.setting))


def _write(path: Path, values: dict[str, Any]) -> None:
    temporary = path.with_suffix(".writing")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.rename(path)
