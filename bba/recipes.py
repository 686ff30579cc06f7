"""What the commands do, each a short story. Their signatures and docstrings are the command line's flags and help.

Heavy libraries are imported inside the functions, so that `--help` answers at once.
"""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bba.errors import BudgetError, CheckpointError, DataError
from bba.output import Result, of_evaluation, of_prediction, progress_bar, table
from bba.settings import ModelSettings, TrainSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bba.data.texts import Split, TextData
    from bba.measure.report import Report
    from bba.model import BBAForSequenceClassification
    from bba.predict import BudgetedClassifier

logger = logging.getLogger(__name__)

ROOT = Path("checkpoints")
SYNTHETIC_MODEL = ModelSettings(
    hidden_size=64, layers=4, heads=8, ffn_size=128, max_length=32, dropout=0.0, token_dropout=0.0
)
"""The teaching task's model: small enough to train while people watch."""


def train(
    task: str,
    out: Path,
    backbone: Literal["word"] = "word",
    data: Path | None = None,
    resume: bool = False,
    model: ModelSettings | None = None,
    training: TrainSettings | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Result:
    """Train a budgeted classifier: dense warm start, soft gates, hard gates, evaluation, checkpoint.

    Args:
        task: synthetic, agnews, dbpedia14, or the path of a CSV, TSV, JSONL or Parquet file with texts and labels.
        out: folder of the checkpoint; it appears when the run is over. Until then its states are in OUT.training.
        backbone: word, a model with fresh weights and a vocabulary of whole words.
        data: folder that holds TASK/train.csv and TASK/test.csv; without it BBA_DATA_DIR, then the hub.
        resume: continue a run that was stopped.
        model: shape of the model; synthetic has a small one of its own. Giving any of it gives the rest as listed.
        training: how it is trained.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba import checkpoints
    from bba.checkpoints import Checkpoint
    from bba.data.sources import load_task
    from bba.predict import BudgetedClassifier
    from bba.training.runs import open_run, work_folder

    training = training or TrainSettings()
    model = model or (SYNTHETIC_MODEL if task == "synthetic" else ModelSettings())
    checkpoints.check_free(out)
    texts = load_task(task, data, seed=training.seed, text_column=text_column, label_column=label_column)
    for problem in texts.problems:
        logger.warning(problem)
    settings = {"task": task, "backbone": backbone, "model": asdict(model), "training": asdict(training)}
    settings["train_split"] = texts.train.digest()
    with open_run(work_folder(out), settings, resume):
        fitted, tokenizer = _fit(texts, model, training, work_folder(out))
        report = _report(texts, fitted, tokenizer, (model, training), work_folder(out))
        BudgetedClassifier(Checkpoint(fitted, tokenizer, report), out.name).save_pretrained(out)
    checkpoints.remove_work(work_folder(out))
    return of_evaluation(out.name, "test", len(texts.test), report.test)


def _fit(
    texts: "TextData", model_settings: ModelSettings, training: TrainSettings, folder: Path
) -> "tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]":
    """Train in `folder`, and round the weights to what will be stored."""
    from transformers import set_seed
    from transformers.utils.logging import disable_progress_bar

    from bba.checkpoints import round_to_half
    from bba.data.synthetic import synthetic_tokenizer
    from bba.data.tokenizers import train_word_tokenizer
    from bba.model.backbones import from_scratch
    from bba.training.stages import encode, train_stages

    if texts.task == "synthetic":
        tokenizer = synthetic_tokenizer()
        tokenizer.model_max_length = model_settings.max_length
    else:
        tokenizer = train_word_tokenizer(texts.train.texts, model_settings.vocab_size, model_settings.max_length)
    disable_progress_bar()
    set_seed(training.seed)
    fresh = from_scratch(model_settings, len(tokenizer), texts.label_names)
    data = (encode(texts.train, tokenizer), encode(texts.validation, tokenizer))
    model = train_stages(fresh, tokenizer, data, training, folder)
    round_to_half(model)
    return model, tokenizer


def _report(
    texts: "TextData",
    model: "BBAForSequenceClassification",
    tokenizer: "PreTrainedTokenizerBase",
    settings: tuple[ModelSettings, TrainSettings],
    folder: Path,
) -> "Report":
    """Measure a finished model on validation and, once, on test; then its latency."""
    import torch

    from bba.measure.latency import LatencySettings, cpu_name, measure_latency, usual_length
    from bba.measure.metrics import GRID, score_budgets, score_without_attention
    from bba.measure.report import Report
    from bba.training.stages import encode, training_seconds

    validation, test = encode(texts.validation, tokenizer), encode(texts.test, tokenizer)
    logger.info("measuring accuracy at %d budgets, then latency", len(GRID))
    return Report(
        task=texts.task,
        labels=list(texts.label_names),
        source=texts.source,
        licence=texts.licence,
        counts={"train": len(texts.train), "validation": len(texts.validation), "test": len(texts.test)},
        seed=settings[1].seed,
        recipe={"model": asdict(settings[0]), "training": asdict(settings[1])},
        training_seconds=training_seconds(folder),
        machine={"cpu": cpu_name(), "threads": torch.get_num_threads()},
        validation=score_budgets(model, validation["input_ids"], validation["labels"]),
        test=score_budgets(model, test["input_ids"], test["labels"]),
        no_attention=score_without_attention(model, test["input_ids"], test["labels"]),
        latency=measure_latency(model, GRID, LatencySettings(length=usual_length(model.config))),
    )


def evaluate(
    checkpoint: Path,
    data: Path | None = None,
    budgets: str | None = None,
    split: str = "test",
    limit: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Result:
    """Measure a checkpoint's accuracy at several budgets, each with a really pruned model.

    Args:
        checkpoint: folder of the checkpoint.
        data: folder of the task's data, or a file with texts and labels; without it as for train.
        budgets: head budgets with commas between, such as 0.25,0.5,1; without it 0.05 to 1 in steps of 0.05.
        split: train, validation or test.
        limit: use only this many examples, the classes in proportion.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba.measure.metrics import score_budgets
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    grid = _budgets(budgets, classifier)
    examples = _examples(classifier, data, split, (text_column, label_column))
    if limit is not None:
        examples = examples.subset(limit, seed=0)
    rows = [one.ids for one in classifier.encode(examples.texts)]
    scored = score_budgets(classifier.checkpoint.model, rows, examples.labels, grid, progress_bar("evaluating"))
    return of_evaluation(classifier.name, split, len(examples), scored)


def _examples(
    classifier: "BudgetedClassifier", data: Path | None, split: str, columns: tuple[str | None, str | None]
) -> "Split":
    from bba.data.sources import TASKS, load_labelled_file, load_split
    from bba.data.synthetic import TASK as SYNTHETIC

    if split not in ("train", "validation", "test"):
        raise DataError(f"There is no split {split!r}: choose train, validation or test.")
    if data is not None and not data.exists():
        raise DataError(f"There is no file or folder {data}: check the path of --data for typing errors.")
    if data is not None and data.is_file():
        examples, problems = load_labelled_file(data, classifier.labels, *columns)
        for problem in problems:
            logger.warning(problem)
        return examples
    if classifier.report is None:
        raise DataError(f"{classifier.name} does not say what it was trained on: give a file with --data.")
    if classifier.report.task not in (SYNTHETIC, *TASKS):
        raise DataError(
            f"{classifier.name} was trained on {classifier.report.source}: give that file with --data, or another one "
            "with the same labels."
        )
    examples, labels = load_split(classifier.report.task, split, data, seed=classifier.report.seed)
    if list(labels) != classifier.labels:
        raise DataError(f"The data's labels are {', '.join(labels)}, the checkpoint's {', '.join(classifier.labels)}.")
    return examples


def predict(
    checkpoint: Path,
    text: str | None = None,
    input: Path | None = None,
    output: Path | None = None,
    budget: str | None = None,
    text_column: str | None = None,
) -> Result:
    """Classify a text, or every row of a file, at a budget.

    Args:
        checkpoint: folder of the checkpoint.
        text: a text to classify.
        input: a CSV, TSV, JSONL or Parquet file with a column of texts.
        output: CSV to write: the input's rows in their order, and label, probability and budget of each.
        budget: head budget in (0, 1]; without it all heads that are there.
        text_column: the column of texts, where its name does not tell.
    """
    from bba.batch import classify_file
    from bba.predict import BudgetedClassifier

    asked = None if budget is None else parse_budget(budget)
    if text is not None and input is None and output is None:
        prediction = BudgetedClassifier.from_pretrained(checkpoint).predict([text], asked)[0]
        return of_prediction(prediction)
    if text is not None or input is None or output is None:
        raise DataError("Give either --text, or both --input and --output.")
    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    classifier.at(asked)
    rows, blank = classify_file(classifier, input, output, asked, text_column)
    note = f"; {blank} of them have no text and got no label" if blank else ""
    return Result({"output": str(output), "n": rows, "blank": blank}, f"{rows} rows written to {output}{note}.")


def prune(checkpoint: Path, budget: str, out: Path) -> Result:
    """Write a smaller checkpoint that has only the heads of a budget.

    Args:
        checkpoint: folder of the checkpoint.
        budget: head budget in (0, 1].
        out: folder to write.
    """
    from bba.predict import BudgetedClassifier

    smaller = BudgetedClassifier.from_pretrained(checkpoint).prune(parse_budget(budget))
    smaller.save_pretrained(out)
    config = smaller.checkpoint.model.config
    values = {
        "checkpoint": str(out),
        "heads": config.num_kept_heads,
        "of": config.num_dense_heads,
        "cost": smaller.largest_budget,
        "parameters": smaller.checkpoint.model.num_parameters(),
    }
    return Result(
        values,
        f"{out} keeps {values['heads']} of {values['of']} heads (cost {values['cost']:.3f}) and has "
        f"{values['parameters']:,} parameters.",
    )


def bench(
    checkpoint: Path,
    budgets: str = "0.25,0.5,0.75",
    batch: int = 1,
    length: int | None = None,
    threads: int = 1,
    rounds: int = 15,
) -> Result:
    """Measure the latency of really pruned models, in turn with the unpruned one.

    Args:
        checkpoint: folder of the checkpoint.
        budgets: head budgets with commas between.
        batch: texts per call.
        length: tokens per text; without it 64, or as many as the model reads.
        threads: CPU threads.
        rounds: how often each model is timed.
    """
    from bba.measure.latency import LatencySettings, measure_latency, usual_length
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    if length is None:
        length = usual_length(classifier.checkpoint.model.config)
    settings = LatencySettings(batch=batch, length=length, threads=threads, rounds=rounds)
    latency = measure_latency(
        classifier.checkpoint.model,
        _budgets(budgets, classifier),
        settings,
        progress_bar("measuring"),
        lambda: logger.warning("Another measurement is running; waiting for it to end."),
    )
    values = {"checkpoint": classifier.name, **asdict(latency)}
    head = f"{latency.cpu}, {latency.threads} thread(s), batch {latency.batch}, {latency.length} tokens, "
    head += f"torch {latency.torch}, median of {latency.rounds} rounds; budget 0 is the model without attention"
    columns = ("budget", "heads", "median_ms", "iqr_ms", "speedup", "predicted_speedup")
    return Result(values, head + "\n" + table(columns, values["rows"]))


def list_checkpoints(root: Path = ROOT) -> Result:
    """List the checkpoints in a folder.

    Args:
        root: folder that holds them.
    """
    from bba.checkpoints import checkpoint_folders, read_report

    rows = []
    for folder in checkpoint_folders(root):
        try:
            report = read_report(folder)
        except CheckpointError as error:  # The others are worth listing all the same.
            logger.warning(error)
            report = None
        best = max(report.test, key=lambda row: row.budget, default=None) if report else None
        rows.append(
            {
                "checkpoint": folder.name,
                "task": report.task if report else "unknown",
                "heads": best.heads if best else "unknown",
                "accuracy": best.accuracy if best else "unknown",
                "pruned_from": report.parent["name"] if report and report.parent else "",
            }
        )
    columns = ("checkpoint", "task", "heads", "accuracy", "pruned_from")
    text = table(columns, rows) if rows else f"No checkpoint in {root}: train one with `python -m bba train`."
    return Result({"root": str(root), "rows": rows}, text)


def parse_budget(text: str) -> float:
    """Return a head budget as it is typed.

    Raises:
        BudgetError: it is not a number in (0, 1].
    """
    from bba.model import check_budget

    if "," in text:
        raise BudgetError(f"The budget {text!r} is not usable: write one number with a decimal point, such as 0.5.")
    return check_budget(text)


def _budgets(text: str | None, classifier: "BudgetedClassifier") -> list[float]:
    """Return budgets as they are typed, or the measured grid as far as the checkpoint serves it."""
    from bba.measure.metrics import GRID

    if text is not None:
        return [parse_budget(part.strip()) for part in text.split(",")]
    within = [budget for budget in GRID if budget <= classifier.largest_budget]
    return within or [classifier.largest_budget]
