"""A model as an ONNX graph: float32, or with weights in int8.

The graph is written down node by node, not traced: milliseconds instead of ten seconds, so that the app can run any
setting, and nothing in it that one call of the model does not need.
"""

import logging
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata
from torch import Tensor, nn

from bba.model import SequenceClassifier, Setting
from bba.model.modeling import Embeddings, FeedForward, Layer, SelfAttention
from bba.onnx_model import INPUTS, OUTPUT, Card

OPSET = 20
"""The first with GELU as one operator."""
IR_VERSION = 10
"""Of the file format; onnxruntime reads it from 1.18 on."""
INT8_OPERATORS = ["MatMul", "Gather"]
"""Products with weights, and the table of embeddings, which is most of a small file."""

_quantising = threading.Lock()  # It sets levels of logging, which are the process's, and visitors share a process.


def card_of(model: SequenceClassifier, checkpoint: str, asked: Setting, int8: bool) -> Card:
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


def write_onnx(model: SequenceClassifier, card: Card, path: Path) -> None:
    """Write a model with its card."""
    graph = _in_int8(_graph_of(model)) if card.kind == "onnx-int8" else _graph_of(model)
    del graph.metadata_props[:]  # The quantiser's notes to itself.
    helper.set_model_props(graph, card.to_properties())
    onnx.save(graph, str(path))


class _Graph:
    """A graph that grows node by node. A value is its name; B texts of T tokens, C channels, n heads of D values."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output, or the list of names if there are several."""
        names = [f"{operator}_{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Tensor | Sequence[int] | float | np.ndarray) -> str:
        """Add a constant; whole numbers are int64, a float is float32."""
        if isinstance(value, Tensor):
            value = value.detach().contiguous().numpy()
        array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else None)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, value: str, weight: Tensor, bias: Tensor) -> str:
        """Multiply by a weight, shape (out, in), and add a bias."""
        return self.node("Add", self.node("MatMul", value, self.constant(weight.T)), self.constant(bias))

    def norm(self, value: str, norm: nn.LayerNorm) -> str:
        """Normalise each position."""
        return self.node(
            "LayerNormalization", value, self.constant(norm.weight), self.constant(norm.bias), epsilon=norm.eps
        )

    def first(self, value: str) -> str:
        """Cut (B, T, C) to its first position, (B, 1, C)."""
        return self.node("Slice", value, self.constant([0]), self.constant([1]), self.constant([1]))


def _graph_of(model: SequenceClassifier) -> onnx.ModelProto:
    """Return the model as an ONNX graph for any batch size and any length that it can read."""
    graph, encoder = _Graph(), model.encoder
    ids, attention_mask = INPUTS
    hidden = _embeddings(graph, encoder.embeddings, ids)
    mask = graph.node("Cast", graph.node("Unsqueeze", attention_mask, graph.constant([1, 2])), to=TensorProto.BOOL)
    layers = cast(list[Layer], list(encoder.layers))
    for number, layer in enumerate(layers, start=1):
        hidden = _layer(graph, layer, hidden, mask, first_only=number == len(layers))
    first = graph.node("Squeeze", hidden, graph.constant([1]))
    pooled = graph.node("Tanh", graph.linear(first, encoder.pooler.weight, encoder.pooler.bias))
    logits = graph.linear(pooled, model.classifier.weight, model.classifier.bias)
    graph.nodes.append(helper.make_node("Identity", [logits], [OUTPUT]))
    return _finished(graph, len(model.config.labels))


def _finished(graph: _Graph, labels: int) -> onnx.ModelProto:
    """Return the graph with its inputs and its output declared."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in INPUTS]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", labels])
    return helper.make_model(
        helper.make_graph(graph.nodes, "bba", inputs, [output], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="bba",
    )


def _embeddings(graph: _Graph, embeddings: Embeddings, ids: str) -> str:
    """Add the hidden states (B, T, C) of token ids (B, T); all of them are of segment 0."""
    table = embeddings.positions.weight + embeddings.segments.weight[0]
    length = graph.node("Shape", ids, start=1, end=2)
    positions = graph.node("Slice", graph.constant(table), graph.constant([0]), length, graph.constant([0]))
    tokens = graph.node("Gather", graph.constant(embeddings.tokens.weight), ids)
    return graph.norm(graph.node("Add", tokens, positions), embeddings.norm)


def _layer(graph: _Graph, layer: Layer, hidden: str, mask: str, first_only: bool) -> str:
    """Add a layer from (B, T, C) to (B, Q, C); Q is 1 with `first_only`, else T."""
    queried = graph.first(hidden) if first_only else hidden
    attended = _attention(graph, layer.attention, queried, hidden, mask)
    hidden = graph.norm(graph.node("Add", queried, attended), layer.attention_norm)
    return graph.norm(graph.node("Add", hidden, _feed_forward(graph, layer.ffn, hidden)), layer.ffn_norm)


def _feed_forward(graph: _Graph, ffn: FeedForward, hidden: str) -> str:
    """Add the feed-forward part; without neurons only its bias is left."""
    if ffn.neurons == 0:
        return graph.constant(ffn.output.bias)
    inner = graph.node("Gelu", graph.linear(hidden, ffn.input.weight, ffn.input.bias))
    return graph.linear(inner, ffn.output.weight, ffn.output.bias)


def _attention(graph: _Graph, attention: SelfAttention, queried: str, hidden: str, mask: str) -> str:
    """Add self-attention from the positions of `queried` over those of `hidden`; without heads only a bias is left."""
    if attention.heads == 0:
        return graph.constant(attention.output.bias)
    projected = _projections(graph, attention, queried, hidden)
    shape = graph.constant([0, 0, attention.heads, attention.config.head_size])  # 0 leaves a dimension as it is.
    query, key, value = (graph.node("Reshape", part, shape) for part in projected)  # (B, T, n * D) -> (B, T, n, D)
    query, value = (graph.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    weights = graph.node("Softmax", _masked(graph, scores, mask), axis=-1)
    heads = graph.node("Transpose", graph.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", heads, graph.constant([0, 0, attention.width]))
    return graph.linear(joined, attention.output.weight, attention.output.bias)


def _masked(graph: _Graph, scores: str, mask: str) -> str:
    """Add the least score where nothing may be attended to; no row is without a token, so none is lost."""
    return graph.node("Where", mask, scores, graph.constant(torch.finfo(torch.float32).min))


def _projections(graph: _Graph, attention: SelfAttention, queried: str, hidden: str) -> list[str]:
    """Add query, key and value, in one product where they come from the same positions; queries are scaled already."""
    width = attention.width
    weight, bias = attention.qkv.weight.detach().clone(), attention.qkv.bias.detach().clone()
    for part in (weight, bias):
        part[:width] *= attention.config.head_size**-0.5
    if queried == hidden:
        return graph.node("Split", graph.linear(hidden, weight, bias), outputs=3, num_outputs=3, axis=-1)
    query = graph.linear(queried, weight[:width], bias[:width])
    rest = graph.linear(hidden, weight[width:], bias[width:])
    return [query, *graph.node("Split", rest, outputs=2, num_outputs=2, axis=-1)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser, which has no logger of its own, from telling about products that it leaves in float32."""
    logger = logging.getLogger()
    level, silent = logger.level, logging.NullHandler()
    logger.addHandler(silent)  # Where there is no handler, the quantiser would set one up for good.
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(silent)
        logger.setLevel(level)


def _in_int8(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with int8 weights; what they are multiplied with is rounded to 8 bits as it comes.

    A scale for each column, and 7 of the 8 bits: without VNNI, as on AVX2, a sum of two full products does not fit into
    the 16 bits that the CPU has for it. On `agnews-word` this took the logits' error from 4 % of their spread to 0.3 %,
    at the same speed.
    """
    add_pre_process_metadata(graph)  # There is nothing to fold in it; onnxruntime warns where nobody says so.
    with tempfile.TemporaryDirectory() as folder, _quantising, _quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(graph, path, INT8_OPERATORS, per_channel=True, reduce_range=True)
        return onnx.load(path)
