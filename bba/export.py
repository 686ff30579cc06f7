"""Exporting a classifier at a setting as an ONNX file, which runs without torch; float32, or int8 for weights.

No file stays that was not compared with the model it was made from: see `export`.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bba.errors import DataError, ExportError
from bba.model import BBAConfig, SequenceClassifier
from bba.onnx_graph import card_of, write_onnx
from bba.onnx_model import Card, OnnxModel
from bba.predict import BudgetedClassifier

SUFFIX = ".onnx"
TOKENIZER_SUFFIX = ".tokenizer.json"
MAX_DIFFERENCE = 1e-4
"""A float32 file's logits differ from the model's by no more than this."""
MAX_INT8_ERROR = 0.1
"""An int8 file's logits are off by no more than this share of their spread; 0.01 to 0.03 is usual."""
MAX_CHANGED = 0.03
"""An int8 file gives no more than this share of texts another label; one text may change in any case."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how near it comes to the model it was made from."""

    path: Path
    tokenizer: Path
    """The tokenizer beside it; it cuts texts at the longest input, and pads a batch's short ones."""
    kind: str
    """`onnx`, with float32 weights, or `onnx-int8`."""
    bytes: int
    """Size of the file, without the tokenizer."""
    max_difference: float
    """Largest absolute difference of a logit, on batches of random tokens."""
    relative_error: float
    """Root mean square of those differences, as a share of the logits' standard deviation."""
    agreement: float | None
    """Share of the given texts that get the model's label, in [0, 1]; None without texts."""
    accuracy: float | None
    """Share of the given texts that the file classifies right; None without labels."""
    torch_accuracy: float | None
    """The same of the model."""


def export(
    classifier: BudgetedClassifier,
    path: Path,
    budget: float | None = None,
    ffn_budget: float = 1.0,
    int8: bool = False,
    texts: Sequence[str] | None = None,
    labels: Sequence[int] | None = None,
) -> Exported:
    """Write a classifier, pruned to a setting, as an ONNX file, with its tokenizer beside it: both or neither.

    The file maps `input_ids` and `attention_mask`, int64, shape (batch, length), to `logits`, shape (batch, labels).
    It stays only if, in onnxruntime, it computes what the pruned model computes on batches of random tokens, padded and
    not: every logit within `MAX_DIFFERENCE` in float32, a relative error of at most `MAX_INT8_ERROR` in int8. Labels of
    random tokens mean nothing; give `texts` to have those of an int8 file compared too (`MAX_CHANGED`).

    Args:
        classifier: what to export.
        path: the file, which must end in .onnx and not be there yet; PATH without .onnx + .tokenizer.json goes with it.
        budget: head budget in (0, 1]; None asks for all that is there.
        ffn_budget: FFN budget in (0, 1]; 1 leaves the feed-forward part as it is.
        int8: store weights as 8-bit integers and multiply in these; smaller and usually quicker, not exactly equal.
        texts: texts of the task, not used in training, on which file and model are compared.
        labels: for each text the position of its true label, to have the accuracy of both as well.

    Raises:
        BudgetError: see `BudgetedClassifier.at`.
        DataError: there is not one label for each text, or see `BudgetedClassifier.predict`.
        ExportError: the file is there already, cannot be written, or does not compute what the model computes.
    """
    path = Path(path)
    _check_free(path)
    if labels is not None and len(labels) != len(texts or ()):
        raise DataError(f"There are {len(labels)} labels for {len(texts or ())} texts: give one for each.")
    model = classifier.at(budget, ffn_budget)
    card = card_of(model, classifier.name, classifier.asked(budget, ffn_budget), int8)
    with _whole_files(path) as (unfinished, tokenizer):
        write_onnx(model, card, unfinished)
        tokenizer.write_text(_standalone(classifier.checkpoint.tokenizer, card).to_str(pretty=True), encoding="utf-8")
        file = OnnxModel(unfinished)
        differences = _compare_logits(file, model)
        labelled = _compare_labels(file, classifier, texts or (), labels, (card.budget, ffn_budget))
        exported = Exported(
            path,
            _tokenizer_path(path),
            card.kind,
            unfinished.stat().st_size,
            *differences,
            *labelled,
        )
        _check_faithful(exported, len(texts or ()))
    return exported


# The two files


def _tokenizer_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX) + TOKENIZER_SUFFIX)


def _check_free(path: Path) -> None:
    if path.suffix != SUFFIX:
        raise ExportError(f"The file {path} cannot be named so: give a name that ends in {SUFFIX}.")
    for file in (path, _tokenizer_path(path)):
        if file.exists():
            raise ExportError(f"{file} exists already: give another name, or remove it first.")


@contextmanager
def _whole_files(path: Path) -> Iterator[tuple[Path, Path]]:
    """Give temporary names for the file and its tokenizer; both take their places when all is well, or none does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            unfinished, tokenizer = Path(folder) / path.name, Path(folder) / _tokenizer_path(path).name
            yield unfinished, tokenizer
            os.replace(tokenizer, _tokenizer_path(path))
            try:
                os.replace(unfinished, path)
            except OSError:
                _tokenizer_path(path).unlink()
                raise
    except OSError as error:
        raise ExportError(
            f"{path} could not be written ({error.strerror or error}): make room or choose another place; "
            "nothing was changed there."
        ) from error


def _standalone(tokenizer: PreTrainedTokenizerBase, card: Card) -> Tokenizer:
    """Return a tokenizer that cuts and pads as the model needs it, with nothing left to set."""
    alone = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    alone.enable_truncation(card.max_length)
    alone.enable_padding(pad_id=card.pad_token_id, pad_token=str(tokenizer.pad_token))
    return alone


# Comparing


def _random_batches(config: BBAConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield token ids and attention masks, shape (B, T), from one token to the longest input, some rows padded."""
    generator = torch.Generator().manual_seed(0)
    longest = config.max_position_embeddings
    for rows, length in ((1, 1), (1, longest), (2, min(2, longest)), (5, (longest + 1) // 2), (4, longest)):
        ids = torch.randint(config.vocab_size, (rows, length), generator=generator)
        lengths = torch.randint(1, length + 1, (rows, 1), generator=generator)
        lengths[0] = length
        mask = (torch.arange(length) < lengths).long()
        yield ids.where(mask == 1, config.pad_token_id), mask


@torch.inference_mode()
def _compare_logits(file: OnnxModel, model: SequenceClassifier) -> tuple[float, float]:
    """Return the largest difference of a logit, and the differences' size as a share of the logits' spread."""
    batches = list(_random_batches(model.config))
    expected = torch.cat([model(*batch).logits for batch in batches])
    difference = torch.cat([file(*batch) for batch in batches]) - expected
    return float(difference.abs().max()), float(difference.square().mean().sqrt() / expected.std())


def _compare_labels(
    file: OnnxModel,
    classifier: BudgetedClassifier,
    texts: Sequence[str],
    labels: Sequence[int] | None,
    asked: tuple[float, float],
) -> tuple[float | None, float | None, float | None]:
    """Return the share of texts with equal labels, and if the true ones are known the accuracy of file and model."""
    predictions = classifier.predict(texts, *asked)
    if not predictions:
        return None, None, None
    model_says = torch.tensor([classifier.labels.index(prediction.label) for prediction in predictions])
    file_says = file.logits_of([prediction.encoded.ids for prediction in predictions]).argmax(dim=-1)
    agreement = _share(file_says == model_says)
    if labels is None:
        return agreement, None, None
    truth = torch.as_tensor(labels)
    return agreement, _share(file_says == truth), _share(model_says == truth)


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


def _check_faithful(exported: Exported, texts: int) -> None:
    """Raise an ExportError if the file is not what the model is. A difference that is no number is too large."""
    if exported.kind == "onnx":
        if not exported.max_difference <= MAX_DIFFERENCE:
            raise ExportError(
                f"The file's logits differ from the model's by up to {exported.max_difference:.2g}, and at most "
                f"{MAX_DIFFERENCE:g} is right, so it was not kept: try another budget, or load the checkpoint again."
            )
        return
    if not exported.relative_error <= MAX_INT8_ERROR:
        raise ExportError(
            f"In int8 the logits are off by {exported.relative_error:.1%} of their spread, and at most "
            f"{MAX_INT8_ERROR:.0%} is usable, so the file was not kept: export it in float32, without int8."
        )
    changed = round((1 - exported.agreement) * texts) if exported.agreement is not None else 0
    if changed > max(1, MAX_CHANGED * texts):
        raise ExportError(
            f"In int8 {changed} of the {texts} texts get another label, and at most {MAX_CHANGED:.0%} is usable, so "
            "the file was not kept: export it in float32, without int8."
        )
