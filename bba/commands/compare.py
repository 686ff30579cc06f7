"""`compare`: ours and every baseline, for several seeds."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bba.errors import DataError, TrainingError
from bba.output import Result, table
from bba.settings import WORD, ModelSettings, TrainSettings, usual_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from bba.data.texts import TextData
    from bba.measure.results import ResultRow
    from bba.model import BBAForSequenceClassification
    from bba.training.comparison import Entry


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
            these three with +recovery, fixed-order, and with a budget for each text budgetformer and routed; without
            it all. Dense and budgeted are always there.
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
    from bba.training.start import first_model

    def first() -> "tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]":
        set_seed(training.seed)
        return first_model(texts, backbone, model, training.ffn)

    disable_progress_bar()
    folder = work_folder(out) / f"seed-{training.seed}"
    settings = {"task": texts.task, "backbone": backbone, "model": asdict(model), "training": asdict(training)}
    with open_run(folder, settings | {"train_split": texts.train.digest()}, resume):
        _, tokenizer = first()
        train, validation, test = (encode(split, tokenizer) for split in (texts.train, texts.validation, texts.test))
        contestants = Contestants(first, (train, validation), training, folder)
        return compare_seed(contestants, wanted, (validation, test), (texts.task, backbone))
