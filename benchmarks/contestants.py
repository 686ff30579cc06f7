"""What takes part in the benchmark of inference: the ways to run one trained classifier, ours and others'."""

import copy
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime
import torch
from onnxruntime.quantization import quantize_dynamic
from torch import Tensor
from transformers import BertForSequenceClassification, pipeline

from bba.backends import BACKENDS, NAMES, Runner, TorchRunner
from bba.model import SequenceClassifier, Setting
from bba.model.inference import pad
from bba.predict import BudgetedClassifier
from bba.pruning.importance import importance, set_order
from bba.pruning.surgery import prune_to
from benchmarks.hf_bert import to_bert

BATCH = 64
"""Texts at a time where many are classified, the same for all that make batches."""
HF_MODEL, HF_PIPELINE, HF_INT8 = "HF model", "HF pipeline", "HF model, ONNX int8"
HF_NOTE = "BertForSequenceClassification, batches of 64 texts as they come"
OUR_NOTE = "batches of 64 texts of like length"
INT8_NOTE = (
    "torch.onnx.export and dynamic quantisation by onnxruntime, which optimum calls too; optimum-onnx 0.1.0 itself "
    "wants transformers before 4.58"
)


@dataclass(frozen=True)
class Contestant:
    """One way to run the classifier."""

    name: str
    setting: Setting
    note: str
    """What it is, where the name does not say it all."""
    call: Callable[[Tensor], object]
    """One call with token ids, shape (B, T)."""
    classify: Callable[[Sequence[str]], list[int]]
    """From texts to the numbers of their classes, tokenising included."""


def contestants(
    classifier: BudgetedClassifier, examples: Sequence[dict[str, Tensor]], shallow: SequenceClassifier
) -> list[Contestant]:
    """Return all of them, for as many threads as torch is set to.

    Args:
        classifier: an unpruned checkpoint.
        examples: labelled texts that are not test texts, on which TextPruner's method ranks heads and neurons.
        shallow: a trained model of three layers with the checkpoint's vocabulary, in evaluation mode.
    """
    bert = to_bert(classifier.checkpoint.model)
    theirs = [
        _of_call(HF_MODEL, HF_NOTE, _logits_of_bert(bert), classifier),
        _pipeline(bert, classifier, 1),
        _pipeline(bert, classifier, BATCH),
        _of_call(HF_INT8, INT8_NOTE, _int8_of_bert(bert), classifier),
    ]
    ranked = copy.deepcopy(classifier.checkpoint.model)
    set_order(ranked, importance(ranked, examples))
    cut = [_by_importance(ranked, setting, classifier, len(examples)) for setting in settings(classifier)[1:]]
    note = "the first three layers of our checkpoint, trained on for two epochs with the whole of it as the teacher"
    layers = _of_runner("3 layers", Setting(1.0), note, TorchRunner(shallow), classifier)
    return [*theirs, *cut, layers, *ours(classifier)]


def settings(classifier: BudgetedClassifier) -> list[Setting]:
    """Return the settings of ours that take part; the pairs only where there is an FFN dial."""
    heads = [Setting(1.0), Setting(0.5), Setting(0.25)]
    return heads + ([Setting(0.5, 0.5), Setting(0.25, 0.25)] if classifier.has_ffn_dial else [])


def ours(classifier: BudgetedClassifier) -> list[Contestant]:
    """Return the checkpoint at every setting on every backend."""
    return [
        _of_runner(f"Ours, {NAMES[backend]}", setting, OUR_NOTE, classifier.on(backend).running(*setting), classifier)
        for backend in BACKENDS
        for setting in settings(classifier)
    ]


def _of_runner(name: str, setting: Setting, note: str, runner: Runner, classifier: BudgetedClassifier) -> Contestant:
    """Return a model of our class: texts of like length share a batch."""

    def classify(texts: Sequence[str]) -> list[int]:
        rows = [one.ids for one in classifier.encode(texts)]
        return list(runner.logits_of(rows, BATCH).argmax(dim=-1).tolist())

    return Contestant(name, setting, note, runner, classify)


def _by_importance(
    ranked: SequenceClassifier, setting: Setting, classifier: BudgetedClassifier, texts: int
) -> Contestant:
    """Return what TextPruner does: heads and neurons of the dense model ranked by their gradient, cut, not trained."""
    runner = TorchRunner(prune_to(ranked, *setting).eval())
    note = (
        f"our checkpoint at budget 1, ranked by importance on {texts} validation texts and cut, no training after it; "
        "unlike a plain fine-tune it was trained for all budgets, which helps here"
    )
    return _of_runner("TextPruner's method", setting, note, runner, classifier)


# Hugging Face's model


def _logits_of_bert(bert: BertForSequenceClassification) -> Callable[..., Tensor]:
    @torch.inference_mode()
    def call(ids: Tensor, mask: Tensor | None = None) -> Tensor:
        logits: Tensor = bert(input_ids=ids, attention_mask=mask).logits
        return logits

    return call


def _of_call(name: str, note: str, call: Callable[..., Tensor], classifier: BudgetedClassifier) -> Contestant:
    """Return a model that is called with ids and mask: texts in their own order, each batch padded to its longest."""
    tokenizer = classifier.checkpoint.tokenizer
    longest = classifier.checkpoint.model.config.max_position_embeddings

    def classify(texts: Sequence[str]) -> list[int]:
        answers: list[int] = []
        for start in range(0, len(texts), BATCH):
            part = list(texts[start : start + BATCH])
            rows = tokenizer(part, truncation=True, max_length=longest)["input_ids"]
            answers += call(*pad(rows, tokenizer.pad_token_id or 0)).argmax(dim=-1).tolist()
        return answers

    return Contestant(name, Setting(1.0), note, call, classify)


def _pipeline(bert: BertForSequenceClassification, classifier: BudgetedClassifier, batch: int) -> Contestant:
    """Return the pipeline; for one call it gets a text of as many tokens, since it takes no ids."""
    make: Any = pipeline  # Its types know no tokenizer's base class.
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    run = make("text-classification", model=bert, tokenizer=classifier.checkpoint.tokenizer, device="cpu")
    options = {"truncation": True, "max_length": classifier.checkpoint.model.config.max_position_embeddings}

    def call(ids: Tensor) -> object:
        return run([_text_of(ids.shape[1])] * len(ids), batch_size=len(ids), **options)

    def classify(texts: Sequence[str]) -> list[int]:
        return [numbers[answer["label"]] for answer in run(list(texts), batch_size=batch, **options)]

    how = "its own default of one text at a time" if batch == 1 else f"batch_size={batch}"
    return Contestant(f"{HF_PIPELINE}, batch {batch}", Setting(1.0), f"from text to answer, {how}", call, classify)


def _text_of(tokens: int) -> str:
    """Return a text of so many tokens, [CLS] and [SEP] included."""
    return " ".join(["the"] * (tokens - 2))


def _int8_of_bert(bert: BertForSequenceClassification) -> Callable[..., Tensor]:
    """Return Hugging Face's model as its exporter and onnxruntime's quantiser leave it."""
    ids = torch.ones(2, 8, dtype=torch.long)
    shapes = {name: {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")} for name in ("input_ids", "mask")}
    program = torch.onnx.export(
        _LogitsOnly(bert).eval(),
        (ids, ids.clone()),  # The same tensor twice would become one input.
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=["input_ids", "mask"],
        output_names=["logits"],
        verbose=False,
    )
    assert program is not None
    quantised = io.BytesIO()
    quantize_dynamic(program.model_proto, quantised, per_channel=True, reduce_range=True)
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(quantised.getvalue(), session_options, providers=["CPUExecutionProvider"])

    def call(ids: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(ids) if mask is None else mask
        return torch.from_numpy(session.run(None, {"input_ids": ids.numpy(), "mask": mask.numpy()})[0])

    return call


class _LogitsOnly(torch.nn.Module):
    """Hugging Face's model as a function from two tensors to one."""

    def __init__(self, bert: BertForSequenceClassification) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.bert(input_ids=input_ids, attention_mask=mask).logits
        return logits
