"""The folder contract of a checkpoint: what is in it, and how it is written, read and listed."""

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from bba.errors import CheckpointError
from bba.measure.budgetformer_report import BudgetFormerReport
from bba.measure.report import Report
from bba.model import BBAConfig, BudgetFormerConfig, SequenceClassifier
from bba.model.blank import blank

if TYPE_CHECKING:
    from bba.model import BudgetFormerForSequenceClassification

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
REPORT = "report.json"
CARD = "README.md"
REQUIRED = (CONFIG, WEIGHTS, *TOKENIZER)
"""Without these a folder cannot classify. Report and card are there in all that our commands write."""
_HOW = {
    BBAConfig.model_type: "has a dial and no budgets of its own: use it with `bba.BudgetedClassifier`",
    BudgetFormerConfig.model_type: "is a BudgetFormer, which has no dial, as it chooses heads for each text itself: "
    "use it with `bba.budgetformer.BudgetFormerClassifier`",
}
"""How each kind of checkpoint is used; told to those who take one for the other."""
_ARCHITECTURES = {
    BBAConfig.model_type: "BBAForSequenceClassification",
    BudgetFormerConfig.model_type: "BudgetFormerForSequenceClassification",
}
"""What transformers calls each kind."""
_Model = TypeVar("_Model", "SequenceClassifier", "BudgetFormerForSequenceClassification")
_Report = TypeVar("_Report", Report, BudgetFormerReport)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint. The report is None for a folder that another program wrote."""

    model: SequenceClassifier
    tokenizer: PreTrainedTokenizerBase
    report: Report | None


@dataclass(frozen=True)
class BudgetFormerCheckpoint:
    """A loaded BudgetFormer."""

    model: "BudgetFormerForSequenceClassification"
    tokenizer: PreTrainedTokenizerBase
    report: BudgetFormerReport | None


def round_to_half(model: nn.Module) -> None:
    """Round the weights to what half precision can hold, so that the stored model is the one that is measured."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.half().float())


def _is_half(weights: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, tensor.half().float()) for tensor in weights.values())


def save(folder: Path, checkpoint: Checkpoint | BudgetFormerCheckpoint, card: str) -> None:
    """Write a checkpoint whole or not at all.

    Weights are stored in half precision where this loses nothing (see `round_to_half`).

    Raises:
        CheckpointError: the folder is there already and is not empty, or it cannot be written.
    """
    weights = checkpoint.model.state_dict()
    stored = {name: tensor.half() for name, tensor in weights.items()} if _is_half(weights) else weights
    config = copy.deepcopy(checkpoint.model.config)
    config.architectures, config.dtype = [_ARCHITECTURES[config.model_type]], "float32"
    with whole_folder(folder) as inside:
        config.save_pretrained(inside)
        save_file(stored, inside / WEIGHTS, metadata={"format": "pt"})  # transformers reads no file without a format.
        checkpoint.tokenizer.save_pretrained(inside)
        if checkpoint.report is not None:
            (inside / REPORT).write_text(_text_of(checkpoint.report), encoding="utf-8")
        (inside / CARD).write_text(card, encoding="utf-8")


def _text_of(report: Report | BudgetFormerReport) -> str:
    return json.dumps(report.to_json(), indent=1) + "\n"


def replace_report(folder: Path, report: Report, card: str) -> None:
    """Put a report and a card in the place of those of a checkpoint, each whole or not at all.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".report.") as temporary:
            for name, text in ((REPORT, _text_of(report)), (CARD, card)):
                (Path(temporary) / name).write_text(text, encoding="utf-8")
            for name in (REPORT, CARD):
                os.replace(Path(temporary) / name, folder / name)
    except OSError as error:
        raise CheckpointError(
            f"The report could not be written to {folder} ({error.strerror or error}): make room or choose a copy of "
            "the checkpoint that you may change."
        ) from error


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give a folder of a temporary name to write into; it becomes `folder` when all is written, and else is removed.

    Raises:
        CheckpointError: the folder is there already and is not empty, or it cannot be written.
    """
    check_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            yield inside
            if folder.exists():
                folder.rmdir()
            inside.rename(folder)
    except Exception as error:  # On a full disk, safetensors and tokenizers raise kinds of their own, no OSError.
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise CheckpointError(
            f"The checkpoint could not be written to {folder} ({reason}): "
            "make room or choose another place; nothing was changed there."
        ) from error


def check_free(folder: Path) -> None:
    """Raise a CheckpointError if something is at `folder` already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} exists already: give --out a new name, or remove it first.")


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint; weights are float32 in use.

    Raises:
        CheckpointError: the folder is not there, is not one of ours, or is damaged.
    """
    return Checkpoint(*_load(folder, SequenceClassifier, BBAConfig), read_report(folder))


def load_budgetformer(folder: Path) -> BudgetFormerCheckpoint:
    """Read a BudgetFormer; see `load`."""
    from bba.model import BudgetFormerForSequenceClassification  # Seconds that nobody pays who classifies at a budget.

    model, tokenizer = _load(folder, BudgetFormerForSequenceClassification, BudgetFormerConfig)
    return BudgetFormerCheckpoint(model, tokenizer, read_budgetformer_report(folder))


def _load(folder: Path, kind: type[_Model], config_kind: type[BBAConfig]) -> tuple[_Model, PreTrainedTokenizerBase]:
    """Return model and tokenizer, or say in what way they are damaged."""
    _check_files(folder)
    _check_kind(folder, config_kind.model_type)
    try:
        config = _load_config(folder, config_kind)
        model = _load_model(folder, kind, config)
        tokenizer = _load_tokenizer(folder, config)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise CheckpointError(
            f"The checkpoint {folder} is damaged ({reason}): copy it again, or train it again."
        ) from error
    return model.eval(), tokenizer


def _load_config(folder: Path, kind: type[BBAConfig]) -> BBAConfig:
    try:
        return kind.from_pretrained(folder)
    except StrictDataclassError as error:
        raise ValueError(error.__cause__ or error) from error  # The cause is the check's own sentence.


def _load_model(folder: Path, kind: type[_Model], config: BBAConfig) -> _Model:
    weights = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS).items()}
    model = blank(kind, config)
    try:
        odd = model.load_state_dict(weights, strict=False, assign=True)
    except RuntimeError as error:
        raise ValueError("its weights do not have the shapes that its configuration names") from error
    if odd.missing_keys or odd.unexpected_keys:
        name = min(*odd.missing_keys, *odd.unexpected_keys)
        raise ValueError(f"its weights do not fit its configuration, {name} among them")
    return model


def _load_tokenizer(folder: Path, config: BBAConfig) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # The tokenizers library raises nothing more precise.
        raise ValueError("its tokenizer cannot be read") from error
    if len(tokenizer) > config.vocab_size:
        raise ValueError(f"its tokenizer has {len(tokenizer)} tokens, its model {config.vocab_size}")
    return tokenizer


def _check_files(folder: Path) -> None:
    if not folder.is_dir():
        found = ", ".join(path.name for path in checkpoint_folders(folder.parent)) or "none"
        raise CheckpointError(f"There is no checkpoint at {folder}; in {folder.parent} there are: {found}.")
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} is not a complete checkpoint, {' and '.join(missing)} is missing: "
            f"expected {', '.join(REQUIRED)}."
        )


def _check_kind(folder: Path, wanted: str) -> None:
    kind = _model_type(folder)
    if kind in _HOW and kind != wanted:
        raise CheckpointError(f"{folder} {_HOW[kind]}.")
    if kind != wanted:
        raise CheckpointError(
            f"{folder} holds a {kind!r} model, not a budgeted one: train one with `python -m bba train`."
        )


def _model_type(folder: Path) -> str | None:
    try:
        kind: str | None = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON of a configuration: copy it again.") from error
    return kind


def is_budgetformer(folder: Path) -> bool:
    """Return whether a checkpoint is a BudgetFormer, without touching its weights.

    Raises:
        CheckpointError: its configuration is damaged.
    """
    return _model_type(folder) == BudgetFormerConfig.model_type


def read_report(folder: Path) -> Report | None:
    """Read a checkpoint's report without touching its weights; None if it has none.

    Raises:
        CheckpointError: it is damaged.
    """
    return _read_report(folder, Report)


def read_budgetformer_report(folder: Path) -> BudgetFormerReport | None:
    """Read a BudgetFormer's report; see `read_report`."""
    return _read_report(folder, BudgetFormerReport)


def _read_report(folder: Path, kind: type[_Report]) -> _Report | None:
    path = folder / REPORT
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: copy it again, or train the checkpoint again.") from error
    try:
        return kind.from_json(values)
    except CheckpointError as error:
        raise CheckpointError(f"In {folder}, {error}") from error


def checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders in `root` that hold a checkpoint, by name."""
    if not root.is_dir():
        return []
    return sorted(path.parent for path in root.glob(f"*/{CONFIG}") if not path.parent.name.startswith("."))


def remove_work(folder: Path) -> None:
    """Remove a run's folder of training states."""
    shutil.rmtree(folder, ignore_errors=True)
