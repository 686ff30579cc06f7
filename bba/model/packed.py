"""Inference on packed tokens: a classifier as one plain function, without padding and without modules.

It computes what `SequenceClassifier` computes in evaluation mode with every gate open, in less time. The
tokens of a batch stand below each other in one matrix, so that padding is never multiplied; and no chain of `nn.Module`
calls surrounds the matrix products, which at one short text is a tenth of a pruned model's time.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bba.model.modeling import Layer, SequenceClassifier

_Affine = tuple[Tensor, Tensor]
"""Weight, shape (in, out), and bias, shape (out,), of a linear map."""


class _Norm(NamedTuple):
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)


class _Layer(NamedTuple):
    heads: int
    query: _Affine
    key_value: _Affine
    """Of both, one after the other."""
    qkv: _Affine
    attention_output: _Affine
    attention_norm: _Norm
    neurons: int
    ffn_input: _Affine
    ffn_output: _Affine
    ffn_norm: _Norm


class PackedClassifier:
    """A classifier as a function of token ids; it shares the model's weights and sees it when they change.

    Args:
        model: dense or pruned; its gates play no part.
    """

    def __init__(self, model: SequenceClassifier) -> None:
        embeddings = model.encoder.embeddings
        self.tokens = embeddings.tokens.weight.detach()
        self.positions = embeddings.positions.weight.detach()
        self.segment = embeddings.segments.weight[0].detach()
        self.norm = _norm(embeddings.norm)
        self.layers = [_layer(cast("Layer", layer)) for layer in model.encoder.layers]
        self.pooler = _affine(model.encoder.pooler)
        self.classifier = _affine(model.classifier)

    @torch.inference_mode()
    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (B, num_labels), of a batch of token ids.

        Args:
            input_ids: shape (B, T), padded on the right.
            attention_mask: 1 for tokens, 0 for padding, shape (B, T); None where there is no padding.
        """
        batch, longest = input_ids.shape
        hidden = self.norm(F.embedding(input_ids, self.tokens) + self.segment + self.positions[:longest])
        if attention_mask is None:
            lengths, hidden = [longest] * batch, hidden.flatten(0, 1)  # (B, T, C) -> (tokens, C)
        else:
            lengths, hidden = attention_mask.sum(dim=1).tolist(), hidden[attention_mask.bool()]
        for layer in self.layers[:-1]:
            hidden = _finish(layer, hidden, _self_attention(layer, hidden, lengths))
        last = self.layers[-1]
        first = hidden[torch.tensor([0, *lengths[:-1]]).cumsum(dim=0)]  # (B, C): all that is read of the last layer.
        hidden = _finish(last, first, _attention_of(last, first, hidden, lengths))
        return _apply(self.classifier, torch.tanh(_apply(self.pooler, hidden)))


def _affine(linear: nn.Linear, rows: slice = slice(None)) -> _Affine:
    return linear.weight.detach()[rows].t(), linear.bias.detach()[rows]


def _norm(norm: nn.LayerNorm) -> _Norm:
    return _Norm(norm.weight.detach(), norm.bias.detach(), norm.eps)


def _layer(layer: Layer) -> _Layer:
    attention, ffn = layer.attention, layer.ffn
    return _Layer(
        heads=attention.heads,
        query=_affine(attention.qkv, slice(attention.width)),
        key_value=_affine(attention.qkv, slice(attention.width, None)),
        qkv=_affine(attention.qkv),
        attention_output=_affine(attention.output),
        attention_norm=_norm(layer.attention_norm),
        neurons=ffn.neurons,
        ffn_input=_affine(ffn.input),
        ffn_output=_affine(ffn.output),
        ffn_norm=_norm(layer.ffn_norm),
    )


def _apply(affine: _Affine, hidden: Tensor) -> Tensor:
    weight, bias = affine
    return torch.addmm(bias, hidden, weight)


def _self_attention(layer: _Layer, hidden: Tensor, lengths: list[int]) -> Tensor:
    """Return the attention output, shape (tokens, C), or its bias alone, shape (C,), where no head is left."""
    if not layer.heads:
        return layer.attention_output[1]
    query, key, value = _apply(layer.qkv, hidden).chunk(3, dim=1)
    return _apply(layer.attention_output, _attend((query, key, value), layer.heads, lengths, lengths))


def _attention_of(layer: _Layer, queried: Tensor, hidden: Tensor, lengths: list[int]) -> Tensor:
    """Return what one position of each text, `queried` (B, C), attends to; see `_self_attention`."""
    if not layer.heads:
        return layer.attention_output[1]
    key, value = _apply(layer.key_value, hidden).chunk(2, dim=1)
    parts = (_apply(layer.query, queried), key, value)
    return _apply(layer.attention_output, _attend(parts, layer.heads, [1] * len(lengths), lengths))


def _attend(parts: Sequence[Tensor], heads: int, queried: list[int], lengths: list[int]) -> Tensor:
    """Attend within each text.

    Args:
        parts: query, shape (sum of `queried`, n * D), key and value, shape (tokens, n * D).
        heads: the number n.
        queried: how many positions of each text ask.
        lengths: tokens of each text.

    Returns:
        The heads' outputs, shape (sum of `queried`, n * D).
    """
    if len(set(lengths)) == 1:
        return _attend_equal(parts, heads, len(lengths))
    query, key, value = parts
    texts = zip(query.split(queried), key.split(lengths), value.split(lengths), strict=True)
    return torch.cat([_attend_equal(text, heads, 1) for text in texts])


def _attend_equal(parts: Sequence[Tensor], heads: int, texts: int) -> Tensor:
    """Attend within each of so many texts of equal length; see `_attend`."""
    size = parts[0].shape[1] // heads
    query, key, value = (part.view(texts, -1, heads, size).transpose(1, 2) for part in parts)  # (texts, n, T, D)
    attended = F.scaled_dot_product_attention(query, key, value)
    return attended.transpose(1, 2).reshape(parts[0].shape)


def _finish(layer: _Layer, hidden: Tensor, attended: Tensor) -> Tensor:
    """Return a layer's output from its input and its attention's output."""
    hidden = layer.attention_norm(hidden + attended)
    if not layer.neurons:
        return layer.ffn_norm(hidden + layer.ffn_output[1])
    return layer.ffn_norm(hidden + _apply(layer.ffn_output, F.gelu(_apply(layer.ffn_input, hidden))))
