"""How quick and how right one trained classifier is, run by this package and by what people use instead.

    python -m benchmarks.inference [--threads 1 2]

Measured in turn, thread count by thread count: the latency of one call at several lengths, and the AG News test texts
from text to label, tokenising included, a part of them by everyone before the next part. What was measured is added to
a file of JSON lines at once; run again after a stop, it goes on from there. At the end the page is written. First a
model of three layers is trained, to be compared with. Let it run alone; on two shared cores of an AMD EPYC the figures
for one thread took an hour after that. It needs AG News in BBA_DATA_DIR or from the hub.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

from bba.data.sources import load_task
from bba.data.texts import Split
from bba.measure.latency import LatencySettings, alone, cpu_name, time_in_turn
from bba.predict import BudgetedClassifier
from bba.pruning.cost import predicted_speedup
from bba.pruning.plan import plan_at
from bba.pruning.surgery import pruned_config
from bba.training.stages import encode, labelled_batches
from benchmarks.contestants import Contestant, contestants
from benchmarks.inference_page import page
from benchmarks.three_layers import three_layers

SHAPES = ((1, 16), (1, 64), (1, 128), (8, 128))
"""Texts and tokens of a call."""
PARTS = 8
"""Parts that the test texts are dealt into."""


class Measured:
    """What was measured so far, in a file of JSON lines; the first line says of what.

    Args:
        path: the file; it is made if it is not there.
        about: checkpoint, texts, machine and versions.

    Raises:
        SystemExit: the file is of something else.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        if path.exists():
            first, *rest = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            if first != about:
                raise SystemExit(f"{path} holds figures of another checkpoint, machine or version: move it away first.")
            self.records: list[dict[str, Any]] = rest
        else:
            self.records = []
            self._write(about)

    def has(self, **what: Any) -> bool:
        """Return whether there is a record of this."""
        return any(what.items() <= record.items() for record in self.records)

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record."""
        self.records.append(record)
        self._write(record)

    def _write(self, value: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def key(contestant: Contestant) -> str:
    """Return what a contestant is called in a record."""
    return f"{contestant.name} {contestant.setting}"


def latency(those: Sequence[Contestant], vocabulary: int, settings: LatencySettings) -> dict[str, list[float]]:
    """Return milliseconds a call, round by round, of everyone."""
    torch.manual_seed(0)
    times = time_in_turn([one.call for one in those], vocabulary, settings, lambda done: None)
    return {key(one): times[:, place].tolist() for place, one in enumerate(those)}


def throughput(those: Sequence[Contestant], part: Split, turn: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the seconds that everyone takes from these texts to their labels, and how many labels are right."""
    seconds, right = {}, {}
    for one in those if turn % 2 == 0 else reversed(those):
        started = time.perf_counter()
        answers = one.classify(part.texts)
        seconds[key(one)] = time.perf_counter() - started
        right[key(one)] = int((np.array(answers) == np.array(part.labels)).sum())
    return seconds, right


def measure(
    measured: Measured, those: Sequence[Contestant], parts: Sequence[Split], vocabulary: int, threads: int, rounds: int
) -> Iterator[str]:
    """Measure what is not measured yet, and say after each step what it was."""
    for batch, length in SHAPES:
        what = {"kind": "latency", "threads": threads, "batch": batch, "length": length}
        if not measured.has(**what):
            settings = LatencySettings(batch, length, threads, rounds)
            measured.add({**what, "ms": latency(those, vocabulary, settings)})
            yield f"{threads} thread(s), {batch} text(s) of {length} tokens"
    for number, part in enumerate(parts):
        what = {"kind": "texts", "threads": threads, "part": number}
        if not measured.has(**what):
            seconds, right = throughput(those, part, number)
            measured.add({**what, "n": len(part), "seconds": seconds, "right": right})
            yield f"{threads} thread(s), part {number + 1} of {len(parts)} of the texts"


def about(classifier: BudgetedClassifier, test: Split, rounds: int) -> dict[str, Any]:
    """Return what the figures depend on: checkpoint, texts, machine and versions; and what FLOPs promise at half."""
    dense = classifier.checkpoint.model
    half = pruned_config(dense.config, plan_at(dense, 0.5))
    return {
        "checkpoint": classifier.name,
        "texts": len(test),
        "digest": test.digest(),
        "rounds": rounds,
        "cpu": cpu_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "onnxruntime": onnxruntime.__version__,
        "predicted": predicted_speedup(half, dense.config, SHAPES[-1][1]),
    }


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/agnews-minilm"), help="an unpruned one")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="CPU threads, one after the other")
    parser.add_argument("--texts", type=int, help="only so many test texts")
    parser.add_argument("--rounds", type=int, default=15, help="how often each call is timed")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/BENCHMARKS.md"), help="the page; its figures go beside it"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, and write the page."""
    given = options()
    classifier, data = BudgetedClassifier.from_pretrained(given.checkpoint), load_task("agnews")
    test = data.test.subset(given.texts, seed=0) if given.texts else data.test
    parts = [test.take(range(start, len(test), PARTS)) for start in range(min(PARTS, len(test)))]
    measured = Measured(given.out.with_suffix(".jsonl"), about(classifier, test, given.rounds))
    shallow = three_layers(classifier, data, given.out.with_suffix(".training"))
    config = classifier.checkpoint.model.config
    examples = labelled_batches(encode(data.validation, classifier.checkpoint.tokenizer), config.pad_token_id)
    with alone():
        for threads in given.threads:
            torch.set_num_threads(threads)
            those = contestants(classifier, examples, shallow)
            for step in measure(measured, those, parts, config.vocab_size, threads, given.rounds):
                print(step, flush=True)
    named = [(key(one), one) for one in those]
    given.out.write_text(page(measured.about, measured.records, named), encoding="utf-8")
    print(f"{given.out} written.")


if __name__ == "__main__":
    main()
