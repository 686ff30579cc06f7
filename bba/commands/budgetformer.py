"""`budgetformer`: texts in, a classifier that chooses its heads for each text out."""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bba.output import Result, of_chosen
from bba.settings import WORD, ModelSettings, TrainSettings, usual_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bba.data.texts import TextData
    from bba.measure.budgetformer_report import BudgetFormerReport
    from bba.model import BBAForSequenceClassification, BudgetFormerForSequenceClassification

logger = logging.getLogger(__name__)


def budgetformer(
    task: str,
    out: Path,
    target: float = 0.5,
    backbone: str = WORD,
    data: Path | None = None,
    limit: int | None = None,
    resume: bool = False,
    model: ModelSettings | None = None,
    training: TrainSettings | None = None,
) -> Result:
    """Train a BudgetFormer: dense warm start, exploration, exploitation, evaluation, checkpoint.

    Args:
        task: as for train.
        out: folder of the checkpoint; it appears when the run is over. Until then its states are in OUT.training.
        target: mean share of the heads that texts shall use, above 0 and up to 1; one head a layer is the floor.
        backbone: as for train.
        data: as for train.
        limit: use only this many training texts, the classes in proportion.
        resume: continue a run that was stopped.
        model: as for train.
        training: as for train; exploration is the soft stage, exploitation the hard one. There is no FFN dial.
    """
    from bba import checkpoints
    from bba.budgetformer import BudgetFormerClassifier
    from bba.checkpoints import BudgetFormerCheckpoint
    from bba.data.sources import load_task
    from bba.model import check_budget
    from bba.training.runs import open_run, work_folder

    usual = usual_settings(task, backbone)
    model, training = model or usual[0], replace(training or usual[1], ffn=False)
    check_budget(target)
    checkpoints.check_free(out)
    texts = load_task(task, data, seed=training.seed)
    for problem in texts.problems:
        logger.warning(problem)
    if limit is not None:
        texts = replace(texts, train=texts.train.subset(limit, training.seed))
    recipe = {"backbone": backbone, "target": target, "model": asdict(model), "training": asdict(training)}
    with open_run(work_folder(out), {"task": task, **recipe, "train_split": texts.train.digest()}, resume):
        dense, fitted, tokenizer = _fit(texts, backbone, model, training, target, work_folder(out))
        report = _report(texts, dense, fitted, tokenizer, recipe, work_folder(out))
        BudgetFormerClassifier(BudgetFormerCheckpoint(fitted, tokenizer, report), out.name).save_pretrained(out)
    checkpoints.remove_work(work_folder(out))
    return of_chosen(out.name, report)


def _fit(
    texts: "TextData",
    backbone: str,
    model_settings: ModelSettings,
    training: TrainSettings,
    target: float,
    folder: Path,
) -> "tuple[BBAForSequenceClassification, BudgetFormerForSequenceClassification, PreTrainedTokenizerBase]":
    """Train in `folder`; return dense warm start, BudgetFormer rounded to what will be stored, and tokenizer."""
    from transformers import set_seed
    from transformers.utils.logging import disable_progress_bar

    from bba.checkpoints import round_to_half
    from bba.training.budgetformer import train_policies
    from bba.training.stages import encode, run_stage, with_teacher
    from bba.training.start import first_model

    disable_progress_bar()
    set_seed(training.seed)
    fresh, tokenizer = first_model(texts, backbone, model_settings, ffn_dial=False)
    train, validation = encode(texts.train, tokenizer), encode(texts.validation, tokenizer)
    dense = run_stage("dense", fresh, tokenizer, (train, validation), training, folder / "1-dense")
    taught = (with_teacher(train, dense), validation)
    model = train_policies(dense, tokenizer, taught, training, target, folder)
    round_to_half(model)
    return dense.eval(), model, tokenizer


def _report(
    texts: "TextData",
    dense: "BBAForSequenceClassification",
    model: "BudgetFormerForSequenceClassification",
    tokenizer: "PreTrainedTokenizerBase",
    recipe: dict[str, Any],
    folder: Path,
) -> "BudgetFormerReport":
    """Measure a finished model on validation and, once, on test; then wall time and memory."""
    import torch

    from bba.measure.budgetformer import measure_timings, score_chosen
    from bba.measure.budgetformer_report import BudgetFormerReport
    from bba.measure.latency import cpu_name
    from bba.measure.metrics import score
    from bba.measure.walltime import ROUNDS, TIMED_TEXTS
    from bba.model.budgetformer_inference import choose_and_classify
    from bba.training.stages import encode, training_seconds

    logger.info("measuring accuracy, heads, wall time and memory")
    splits = {"validation": encode(texts.validation, tokenizer), "test": encode(texts.test, tokenizer)}
    encoded = {name: (split["input_ids"], split["labels"]) for name, split in splits.items()}
    validation, test = (
        score_chosen(model.config, choose_and_classify(model, rows), rows, labels) for rows, labels in encoded.values()
    )
    timed = list(encoded["validation"][0][:TIMED_TEXTS])
    return BudgetFormerReport(
        **texts.origin(),
        seed=recipe["training"]["seed"],
        recipe=recipe,
        target=recipe["target"],
        total_heads=model.config.num_dense_heads,
        training_seconds=training_seconds(folder),
        machine={"cpu": cpu_name(), "threads": torch.get_num_threads(), "torch": torch.__version__}
        | {"texts": len(timed), "rounds": ROUNDS},
        dense_accuracy={split: score(dense, *pair).accuracy for split, pair in encoded.items()},
        validation=validation,
        test=test,
        timings=measure_timings(model, dense, timed),
    )
