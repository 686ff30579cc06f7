"""A model as an ONNX graph: float32, or with weights in int8."""

import logging
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata
from onnxscript import opset20, optimizer
from torch import Tensor, nn

from bba.model import BBAForSequenceClassification, Setting
from bba.onnx_model import INPUTS, OUTPUT, Card

INT8_OPERATORS = ["MatMul", "Gather"]
"""Products with weights, and the table of embeddings, which is most of a small file."""

_exporting = threading.Lock()  # torch.export works on torch's global state, and the app's visitors share a process.


def card_of(model: BBAForSequenceClassification, checkpoint: str, asked: Setting, int8: bool) -> Card:
    """Return what a file of a model tells about itself.

    Args:
        model: already pruned.
        checkpoint: name of what it was pruned from.
        asked: the setting it was pruned to.
        int8: whether its weights will be 8-bit integers.
    """
    return Card(
        checkpoint=checkpoint,
        kind="onnx-int8" if int8 else "onnx",
        budget=asked.budget,
        ffn_budget=asked.ffn_budget,
        heads=[len(kept) for kept in model.config.heads],
        neurons=model.config.ffn_widths,
        labels=list(model.config.labels),
        max_length=model.config.max_position_embeddings,
        pad_token_id=model.config.pad_token_id,
    )


def write_onnx(model: BBAForSequenceClassification, card: Card, path: Path) -> None:
    """Write a model with its card, and without the names of source files that the exporter leaves on every part."""
    graph = _in_int8(_graph_of(model)) if card.kind == "onnx-int8" else _graph_of(model)
    inner = graph.graph
    for part in (*inner.node, *inner.input, *inner.output, *inner.value_info, *inner.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    del graph.metadata_props[:]
    onnx.helper.set_model_props(graph, card.to_properties())
    onnx.save(graph, str(path))


class _Logits(nn.Module):
    """The model as a function from two tensors to one."""

    def __init__(self, model: BBAForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask).logits


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0) -> Any:
    """Translate scaled dot-product attention; heads of D values, mask True where a position may be attended to.

    The exporter's own translation serves every rank, and looks for rows that are masked as a whole, of which there are
    none as a text has a first token: that took 6 % more time on `agnews-word` with 64 tokens.
    """
    scaled = opset20.Mul(query, opset20.Constant(value_float=float(query.shape[-1]) ** -0.5))
    weights = opset20.MatMul(scaled, opset20.Transpose(key, perm=[0, 1, 3, 2]))
    weights = opset20.Where(attn_mask, weights, opset20.Constant(value_float=torch.finfo(torch.float32).min))
    return opset20.MatMul(opset20.Softmax(weights, axis=-1), value)


def _graph_of(model: BBAForSequenceClassification) -> onnx.ModelProto:
    """Return the model as an ONNX graph for any batch size and any length that it can read."""
    example = {name: torch.ones(2, 2, dtype=torch.long) for name in INPUTS}
    with _exporting, _quiet():
        program = torch.onnx.export(
            _Logits(model).eval(),
            kwargs=example,
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in INPUTS},
            custom_translation_table={torch.ops.aten.scaled_dot_product_attention.default: _attention},
            opset_version=opset20.version,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # Only the old exporter returns nothing.
    # What depends on weights only is computed now, whatever its size: only constant weights become int8.
    graph: onnx.ModelProto = optimizer.optimize(program.model_proto, input_size_limit=2**40, output_size_limit=2**40)
    return graph


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from telling about parts of torch that they use, and products that they leave in float32."""
    loggers = (logging.getLogger("torch.onnx"), logging.getLogger())  # The quantiser has none of its own.
    levels = [logger.level for logger in loggers]
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)  # Where there is no handler, the quantiser would set one up for good.
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().removeHandler(silent)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _in_int8(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with int8 weights; what they are multiplied with is rounded to 8 bits as it comes.

    A scale for each column, and 7 of the 8 bits: without VNNI, as on AVX2, a sum of two full products does not fit into
    the 16 bits that the CPU has for it. On `agnews-word` this took the logits' error from 4 % of their spread to 0.3 %,
    at the same speed.
    """
    add_pre_process_metadata(graph)  # It has been folded; onnxruntime warns where nobody says so.
    with tempfile.TemporaryDirectory() as folder, _exporting, _quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(graph, path, INT8_OPERATORS, per_channel=True, reduce_range=True)
        return onnx.load(path)
