"""Training speed and peak memory: our dense stage against a plain fine-tune of the same weights.

    python -m benchmarks.training_speed

The other one is Hugging Face's model under transformers' Trainer, as its documentation fine-tunes a classifier: texts
in random order, padded to the longest of their batch, all weights trained. Ours groups texts by length, computes the
first position only in the last layer, and leaves the embeddings as they are, as is usual here for a pretrained one.
Both make one pass over the same texts, with the same batch size and longest input, in turn, each in a process of its
own. Run it with nothing else going on; it needs the backbone minilm, and AG News in BBA_DATA_DIR or from the hub.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from bba.data.sources import load_task
from bba.measure.latency import cpu_name
from bba.model.backbones import from_pretrained, locate
from bba.settings import usual_settings
from bba.training.stages import encode, run_stage

BACKBONE, TASK = "minilm", "agnews"
KINDS = ("ours", "plain")


def train_once(kind: str, texts: int, folder: Path) -> dict[str, float]:
    """Make one pass over `texts` texts; return examples per second and peak memory in MB of this process."""
    set_seed(0)
    model_settings, training = usual_settings(TASK, BACKBONE)
    data = load_task(TASK, None, seed=0)
    model, tokenizer = from_pretrained(BACKBONE, model_settings, data.label_names)
    train = encode(data.train.subset(texts, seed=0), tokenizer)
    started = time.perf_counter()
    if kind == "ours":
        one_pass = {**vars(training), "ffn": False, "min_steps": 1, "save_every": 10**6}
        validation = train.select(range(training.batch_size))
        run_stage("dense", model, tokenizer, (train, validation), type(training)(**one_pass), folder)
    else:
        _plain(len(data.label_names), tokenizer, train, training.batch_size, folder)
    seconds = time.perf_counter() - started
    return {"rate": texts / seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _plain(labels: int, tokenizer: Any, train: Any, batch_size: int, folder: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(locate(BACKBONE), num_labels=labels)
    arguments = TrainingArguments(
        str(folder), num_train_epochs=1, per_device_train_batch_size=batch_size, learning_rate=1e-4, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    collator = DataCollatorWithPadding(tokenizer)
    Trainer(model, arguments, train_dataset=train, data_collator=collator).train()


def _in_own_process(kind: str, texts: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.training_speed", "--kind", kind, "--texts", str(texts)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main() -> None:
    """Take turns and print medians, or, asked for one kind, train once and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1280, help="texts of a pass")
    parser.add_argument("--rounds", type=int, default=3, help="passes of each kind")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kind:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(train_once(given.kind, given.texts, Path(folder))))
        return
    seen: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(given.rounds):
        for kind in KINDS:
            seen[kind].append(_in_own_process(kind, given.texts))
    ratios = [ours["rate"] / plain["rate"] for ours, plain in zip(seen["ours"], seen["plain"], strict=True)]
    print(f"{cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {given.texts} texts a pass")
    for kind, results in seen.items():
        rates = [result["rate"] for result in results]
        spread = f"{statistics.median(rates):6.1f} examples/s ({min(rates):.1f} to {max(rates):.1f})"
        print(f"{kind:5}  {spread}, {max(result['peak_mb'] for result in results):.0f} MB")
    print(f"ours / plain, same round: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
