"""The page about the benchmark of inference: tables from its records, nothing of its own."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bba.measure.choice import unbeaten
from bba.measure.metrics import wilson
from bba.model import Setting
from benchmarks.contestants import HF_MODEL, HF_PIPELINE, Contestant

Records = Sequence[dict[str, Any]]
Named = tuple[str, Contestant]
"""What a contestant is called in the records, and the contestant."""

HEAD = """# How fast, and how right

One trained classifier, run in several ways: by Hugging Face's own class and pipeline, by its ONNX export in int8, cut
by TextPruner's method, with three layers, and by this package at several settings. What is not cut or rounded computes
the same.
"""
TEXT_PRUNER = """The method that TextPruner implements (Yang et al. 2022, arXiv 2203.15996: rank heads and neurons
by the gradient of the loss, cut, train nothing) is measured, not its package: the last one, 1.1.post2 of 2022, calls
`BertModel.prune_heads`, which transformers 5 has no more. What the method leaves runs here in our modules.
"""


def page(about: dict[str, Any], records: Records, those: Sequence[Named]) -> str:
    """Return the page as Markdown.

    Args:
        about: checkpoint, texts, machine and versions.
        records: what was measured, complete.
        those: everyone that took part, in the order of the tables.
    """
    threads = sorted({record["threads"] for record in records})
    sections = [HEAD, _about(about)]
    for count in threads:
        own = [record for record in records if record["threads"] == count]
        sections += [
            f"## {count} thread{'s' if count > 1 else ''}\n",
            _table(own, those),
            _unbeaten(own, those),
            _ratios(own, those, about["predicted"]),
        ]
    notes = {one.name: one.note for _, one in those if one.note}
    sections.append("## Who takes part\n")
    sections.append("\n".join(f"- **{name}**: {note}." for name, note in notes.items()) + "\n\n" + TEXT_PRUNER)
    return "\n".join(sections)


def _about(about: dict[str, Any]) -> str:
    return (
        f"`{about['checkpoint']}`, {about['cpu']}, torch {about['torch']}, transformers {about['transformers']}, "
        f"onnxruntime {about['onnxruntime']}. Everyone took turns: latency is the median of {about['rounds']} rounds "
        f"for a call with token ids (the pipeline: with a text), in milliseconds; texts per second and accuracy are of "
        f"{about['texts']:,} AG News test texts of their own lengths, from text to label, tokenising included. "
        "Accuracy is in percent, with its 95 % Wilson interval. *x HF* is how many times as fast as the HF model a "
        "call with one text of 64 tokens was in the same round: the median, and the quartiles.\n"
    )


def _table(records: Records, those: Sequence[Named]) -> str:
    shapes = [(record["batch"], record["length"]) for record in records if record["kind"] == "latency"]
    head = ["", "budget", *(f"{batch} x {length}" for batch, length in shapes), "x HF", "texts/s", "accuracy"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    reference = next(name for name, one in those if one.name == HF_MODEL)
    for name, one in those:
        calls = [f"{np.median(_calls(records, name, *shape)):.2f}" for shape in shapes]
        gain = _gain(_calls(records, reference, 1, 64), _calls(records, name, 1, 64))
        cells = [one.name, str(one.setting), *calls, gain, f"{_rate(records, name):.1f}"]
        lines.append("| " + " | ".join([*cells, _accuracy(records, name)]) + " |")
    return "\n".join(lines) + "\n"


def _unbeaten(records: Records, those: Sequence[Named]) -> str:
    """Name those that nobody else is at least as quick and as right as, the quickest last; ours have no privilege."""
    names = [name for name, _ in those]
    seconds, right = [_parts(records, name).sum() for name in names], [_right(records, name) for name in names]
    left = itertools.compress(zip(seconds, names, strict=True), unbeaten(seconds, right))
    told = "; ".join(name for _, name in sorted(left, reverse=True))
    return f"In texts per second and accuracy together nobody beats, from the slowest to the quickest: {told}.\n"


def _ratios(records: Records, those: Sequence[Named], predicted: float) -> str:
    """Say how the ones that are compared most relate, each from the same rounds or parts."""
    dense, half, both = Setting(1.0), Setting(0.5), Setting(0.5, 0.5)
    ours, theirs, int8 = ("Ours, torch", dense), (HF_MODEL, dense), ("Ours, ONNX int8", both)
    calls = [
        ("One text of 64 tokens: ours in torch, dense, over the HF model", ours, theirs, (1, 64)),
        ("One text of 64 tokens: ours in torch at 0.5:0.5 over ours, dense", ("Ours, torch", both), ours, (1, 64)),
        ("One text of 64 tokens: ours in ONNX int8 at 0.5:0.5 over the HF model", int8, theirs, (1, 64)),
        (f"8 texts of 128 tokens: ours in torch at 0.5 over ours, dense (FLOPs: {predicted:.2f})",
         ("Ours, torch", half), ours, (8, 128)),
    ]  # fmt: skip
    keys = {(one.name, one.setting): name for name, one in those}
    lines = [
        f"- {words}: {_gain(_calls(records, keys[slow], *shape), _calls(records, keys[quick], *shape))}"
        for words, quick, slow, shape in calls
        if quick in keys
    ]
    piped = keys[f"{HF_PIPELINE}, batch 1", dense]
    gain = _gain(_parts(records, piped), _parts(records, keys[ours]))
    return (
        "\n".join([*lines, f"- Texts per second: ours in torch, dense, over the HF pipeline, batch 1: {gain}"]) + "\n"
    )


def _calls(records: Records, name: str, batch: int, length: int) -> np.ndarray:
    """Return milliseconds a call, round by round."""
    shape = {"kind": "latency", "batch": batch, "length": length}
    return np.array(next(record["ms"][name] for record in records if shape.items() <= record.items()))


def _parts(records: Records, name: str) -> np.ndarray:
    """Return the seconds that each part of the texts took."""
    return np.array([record["seconds"][name] for record in records if record["kind"] == "texts"])


def _gain(slow: np.ndarray, quick: np.ndarray) -> str:
    """Return how many times as fast one is: the median, and the quartiles."""
    low, middle, high = np.quantile(slow / quick, [0.25, 0.5, 0.75])
    return f"{middle:.2f}x ({low:.2f} to {high:.2f})"


def _rate(records: Records, name: str) -> float:
    texts = sum(record["n"] for record in records if record["kind"] == "texts")
    return float(texts / _parts(records, name).sum())


def _right(records: Records, name: str) -> int:
    return sum(record["right"][name] for record in records if record["kind"] == "texts")


def _accuracy(records: Records, name: str) -> str:
    right = _right(records, name)
    count = sum(record["n"] for record in records if record["kind"] == "texts")
    low, high = wilson(right, count)
    return f"{100 * right / count:.2f} ({100 * low:.2f} to {100 * high:.2f})"
