"""Results of a comparison: one tidy row a model, in a CSV file that the app and the documentation read."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from scipy.stats import t as student_t

from bba.errors import DataError
from bba.model import Setting

METHODS = {
    "dense": "the dense model, trained for as many examples as the budgeted one",
    "int8": "the dense model with weights in int8, run by ONNX Runtime",
    "smaller": "as many heads and neurons, spread evenly over the layers before any training",
    "static": "gates trained for this one setting: a specialist",
    "importance": "the dense model cut in order of head importance, no training after it",
    "magnitude": "the dense model cut in order of the weights' size, no training after it",
    "random": "the dense model cut at random, no training after it",
    "importance+recovery": "cut in order of importance, then one epoch at this setting",
    "magnitude+recovery": "cut in order of the weights' size, then one epoch at this setting",
    "random+recovery": "cut at random, then one epoch at this setting",
    "fixed-order": "one checkpoint for all settings, heads always in order of importance",
    "budgetformer": "heads chosen for each text in each layer, trained for this mean share of them",
    "routed": "ours, but each text at one of a few budgets, at most at this budget's mean cost on validation",
    "budgeted": "ours: one checkpoint for all settings, the order of heads learned",
}
"""What is compared, and what it is in words."""
OURS = "budgeted"
WHOLE = ("dense", "int8")
"""Methods that have no budget: they are compared at 1 alone."""
PER_TEXT = ("budgetformer", "routed")
"""Methods that spend on each text what it needs: their heads, blocks and costs are means over the test texts, and as
they choose by what a text says, there is no latency of drawn token ids."""
HEADS_ALONE = ("budgetformer",)
"""Methods that cannot cut the feed-forward part."""
EMPTY = ("median_ms", "iqr_ms", "speedup", "peak_bytes")
"""Columns that do not apply to every method."""
SPECIALISTS = ("smaller", "static", "importance+recovery", "magnitude+recovery", "random+recovery")
"""Methods that train a model of its own for each setting."""


@dataclass(frozen=True)
class ResultRow:
    """One model at one setting, from one seed."""

    task: str
    backbone: str
    method: str
    """A name in `METHODS`."""
    seed: int
    budget: float
    """Asked head budget."""
    ffn_budget: float
    """Asked FFN budget."""
    heads: float
    """Heads that are there; of a routed text, where it stays."""
    blocks: float
    """Feed-forward blocks, likewise."""
    cost: float
    """Achieved head budget."""
    encoder_cost: float
    """Share of the dense encoder's FLOPs for a text of 64 tokens."""
    flops: int
    """FLOPs of classifying a text of `length` tokens."""
    parameters: int
    validation_accuracy: float
    """What choices between methods are made on."""
    test_texts: int
    accuracy: float
    """On the test texts, as all that follows."""
    accuracy_low: float
    """Lower end of the 95 % Wilson interval."""
    accuracy_high: float
    """Upper end of it."""
    macro_f1: float
    only_ours: int
    """Test texts that the budgeted checkpoint of this seed and setting gets right and this model wrong."""
    only_this: int
    """Test texts that this model gets right and the budgeted checkpoint wrong."""
    training_texts: int
    examples_seen: int
    """Training examples seen from the first weights on, repeats counted."""
    training_seconds: float
    """All that this model needed, its warm start included."""
    shared_seconds: float
    """The part of it that serves other settings of this method too."""
    median_ms: float
    """Median latency in milliseconds per batch; empty for a method that chooses for each text, as are the next two."""
    iqr_ms: float
    """Its interquartile range over the rounds."""
    speedup: float
    """Median over the rounds of the dense model's time over this model's, in the same run."""
    wall_ms_1: float
    """Median wall time in milliseconds of a real text of its own length, all that it takes to choose included."""
    wall_ms_32: float
    """The same of a batch of 32 such texts."""
    peak_bytes: float
    """Most memory that the activations of these batches take at a time; empty for what does not run in torch."""
    cpu: str
    threads: int
    batch: int
    length: int
    rounds: int

    @property
    def setting(self) -> Setting:
        """The asked budgets."""
        return Setting(self.budget, self.ffn_budget)


def mcnemar(only_ours: int, only_this: int) -> float:
    """Return the two-sided p of McNemar's exact test on two models that meet on the same texts.

    McNemar 1947: where just one of them is right, each is so as often as the other, if they are equally good.
    """
    if only_ours + only_this == 0:
        return 1.0
    return float(binomtest(only_ours, only_ours + only_this).pvalue)


def check_methods(text: str | None) -> list[str]:
    """Return methods as they are typed, commas between; without a text all of them.

    Raises:
        DataError: there is no such method.
    """
    if text is None:
        return list(METHODS)
    names = [part.strip() for part in text.split(",")]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise DataError(f"There is no method {unknown[0]!r} to compare with: choose from {', '.join(METHODS)}.")
    return names


def write_results(path: Path, rows: Sequence[ResultRow]) -> None:
    """Write rows as CSV, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.writing")
    pd.DataFrame([asdict(row) for row in rows]).to_csv(temporary, index=False)
    temporary.rename(path)


def read_results(path: Path) -> pd.DataFrame:
    """Return a results file as a table with the fields of `ResultRow` as columns.

    Raises:
        DataError: it is not such a file.
    """
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(f"The results {path} cannot be read ({error}): run `python -m bba compare` again.") from error
    missing = [field.name for field in fields(ResultRow) if field.name not in frame]
    if missing:
        raise DataError(
            f"The results {path} lack the columns {', '.join(missing)}: run `python -m bba compare` again with this "
            "version."
        )
    numbers = frame[[field.name for field in fields(ResultRow) if field.type is not str]]
    incomplete = frame.empty or frame.drop(columns=list(EMPTY)).isna().any(axis=None)
    if incomplete or len(numbers.select_dtypes("number").columns) < numbers.shape[1]:
        raise DataError(
            f"The results {path} are cut off or hold something else than rows: run `python -m bba compare` again."
        )
    return frame


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each method and setting of one task and backbone: means and spread over the seeds.

    `difference` is this method's accuracy minus that of ours with the same seed and setting; `difference_half` is half
    the width of the 95 % interval of its mean, Student's t. Spreads are sample standard deviations. With one seed there
    is neither (NaN).
    """
    keys = ["method", "budget", "ffn_budget"]
    groups = frame.assign(
        difference=(frame["only_this"] - frame["only_ours"]) / frame["test_texts"],
        p=[mcnemar(ours, this) for ours, this in zip(frame["only_ours"], frame["only_this"], strict=True)],
    ).groupby(keys, sort=False)
    summary = groups.agg(
        seeds=("seed", "nunique"),
        accuracy=("accuracy", "mean"),
        accuracy_sd=("accuracy", "std"),
        validation_accuracy=("validation_accuracy", "mean"),
        macro_f1=("macro_f1", "mean"),
        difference=("difference", "mean"),
        difference_sd=("difference", "std"),
        smallest_p=("p", "min"),
        largest_p=("p", "max"),
        heads=("heads", "mean"),
        encoder_cost=("encoder_cost", "mean"),
        flops=("flops", "mean"),
        parameters=("parameters", "mean"),
        median_ms=("median_ms", "mean"),
        iqr_ms=("iqr_ms", "mean"),
        speedup=("speedup", "mean"),
        speedup_sd=("speedup", "std"),
        wall_ms_1=("wall_ms_1", "mean"),
        wall_ms_32=("wall_ms_32", "mean"),
        peak_bytes=("peak_bytes", "mean"),
        examples_seen=("examples_seen", "mean"),
        training_seconds=("training_seconds", "mean"),
        shared_seconds=("shared_seconds", "mean"),
    ).reset_index()
    quantile = student_t.ppf(0.975, summary["seeds"] - 1)
    return summary.assign(difference_half=quantile * summary["difference_sd"] / np.sqrt(summary["seeds"]))


def best_specialists(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the specialist that is best on validation at each setting, from `summarise`."""
    specialists = summary[summary["method"].isin(SPECIALISTS)]
    best = specialists.groupby(["budget", "ffn_budget"], sort=False)["validation_accuracy"].idxmax()
    return specialists.loc[best]


def training_cost(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each method how many models and minutes serve all its settings: mean over the seeds.

    What serves several settings, such as a warm start, is counted once.
    """
    frame = frame.assign(own=frame["training_seconds"] - frame["shared_seconds"])
    by_seed = frame.groupby(["method", "seed"], sort=False).agg(
        own=("own", "sum"), shared=("shared_seconds", "max"), specialists=("own", lambda own: int((own > 0).sum()))
    )
    minutes, models = (by_seed["own"] + by_seed["shared"]) / 60, by_seed["specialists"].clip(lower=1)
    costs = pd.DataFrame({"models": models, "minutes": minutes})
    return costs.groupby("method", sort=False).mean().reset_index()
