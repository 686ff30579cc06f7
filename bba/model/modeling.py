"""A BERT-compatible encoder and text classifier whose layers may have any number of heads and neurons, none included.

Post-LayerNorm, GELU, learned positions, as in BERT (Devlin et al. 2019): on the same weights it gives the same logits
as `transformers.BertForSequenceClassification`, with less work: query, key and value are one matrix product, and the
classifier's last layer computes the first position only, as nothing reads the others.

These are plain modules of torch: who only classifies need not wait for the import of transformers' `PreTrainedModel`,
which takes longer than that of torch. `bba.model.pretrained` makes one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from bba.model.configuration import BBAConfig
from bba.model.gates import BudgetGates


class Embeddings(nn.Module):
    """Token, position and segment embeddings, added and normalised."""

    def __init__(self, config: BBAConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segments = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.token_dropout = config.token_dropout

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return hidden states, shape (B, T, C), of token ids, shape (B, T)."""
        segments = self.segments.weight[0] if token_type_ids is None else self.segments(token_type_ids)
        tokens = self.tokens(input_ids)
        if self.training and self.token_dropout > 0:
            shown = torch.rand_like(tokens[..., :1]) >= self.token_dropout
            shown[:, 0] = True
            tokens = tokens * shown
        return self.dropout(self.norm(tokens + segments + self.positions.weight[: input_ids.shape[1]]))


def eager_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attend with plain matrix products; return the output (B, n, T, D) and the attention weights (B, n, T, T)."""
    weights = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        weights = weights.masked_fill(~mask, torch.finfo(weights.dtype).min)
    weights = F.dropout(weights.softmax(dim=-1), dropout)
    return weights @ value, weights


class Projection(nn.Linear):
    """A linear map that the model initialises: torch's own way warns about the empty matrices of headless layers."""

    def reset_parameters(self) -> None:
        """Leave the weights to `_init_weights`."""


def open_units(gates: Tensor | None, width: int) -> Tensor | None:
    """Return which of a layer's columns belong to units that are not closed; None if all do.

    Args:
        gates: one gate per unit, shape (units,); a closed one is exactly 0.
        width: columns of the layer, the same number for each unit.
    """
    if gates is None or bool(gates.detach().all()):
        return None
    size = width // len(gates)
    units = gates.detach().nonzero()  # (open units, 1)
    return (units * size + torch.arange(size, device=units.device)).flatten()


class SelfAttention(nn.Module):
    """Multi-head self-attention over the n heads that this layer has."""

    def __init__(self, config: BBAConfig, heads: int) -> None:
        super().__init__()
        self.config = config
        self.heads = heads
        self.width = heads * config.head_size
        self.qkv = Projection(config.hidden_size, 3 * self.width)
        self.output = Projection(self.width, config.hidden_size)

    def forward(
        self, hidden: Tensor, mask: Tensor | None, gates: Tensor | None, first_only: bool, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output, shape (B, Q, C), and the attention weights if they are asked for.

        Args:
            hidden: hidden states, shape (B, T, C).
            mask: True where a position may be attended to, shape (B, 1, 1, T); None lets all be.
            gates: how open each head is, shape (n,); it multiplies the head's output before the output projection.
                A closed head, whose gate is exactly 0, is not computed and gives its gate no gradient.
            first_only: attend from the first position only, Q = 1; else from all, Q = T.
            output_attentions: compute with plain matrix products and return the weights of open heads (B, n, Q, T).
        """
        columns = open_units(gates, self.width)
        if self.heads == 0 or (columns is not None and len(columns) == 0):
            return self.output.bias.expand(hidden.shape[0], 1 if first_only else hidden.shape[1], -1), None
        query, key, value = self._project(hidden, columns, first_only)
        dropout = self.config.attention_dropout if self.training else 0.0
        weights = None
        if output_attentions:
            attended, weights = eager_attention(query, key, value, mask, dropout)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        if gates is not None:
            attended = attended * gates[gates.detach() != 0][:, None, None]
        output = self.output.weight if columns is None else self.output.weight.index_select(1, columns)
        attended = attended.transpose(1, 2).flatten(2)  # (B, n, Q, D) -> (B, Q, n * D)
        return F.linear(attended, output, self.output.bias), weights

    def _project(self, hidden: Tensor, columns: Tensor | None, first_only: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return query (B, n, Q, D), key and value (B, n, T, D) of the heads that `columns` belong to."""
        weight, bias = self.qkv.weight.view(3, self.width, -1), self.qkv.bias.view(3, self.width)
        if columns is not None:
            weight, bias = weight.index_select(1, columns), bias.index_select(1, columns)
        if first_only:
            query = F.linear(hidden[:, :1], weight[0], bias[0])
            key, value = F.linear(hidden, weight[1:].flatten(0, 1), bias[1:].flatten()).chunk(2, dim=-1)
        else:
            query, key, value = F.linear(hidden, weight.flatten(0, 1), bias.flatten()).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)  # (B, T, n * D) -> (B, n, T, D)
            for part in (query, key, value)
        )
        return query, key, value


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them; its neurons are gated in blocks of equal size."""

    def __init__(self, config: BBAConfig, neurons: int) -> None:
        super().__init__()
        self.neurons = neurons
        self.input = Projection(config.hidden_size, neurons)
        self.output = Projection(neurons, config.hidden_size)

    def forward(self, hidden: Tensor, gates: Tensor | None) -> Tensor:
        """Map hidden states, shape (B, T, C), to the same shape.

        Args:
            hidden: hidden states.
            gates: how open each block of neurons is, shape (blocks,); it multiplies the neurons' outputs. A closed
                block, whose gate is exactly 0, is not computed and gives its gate no gradient.
        """
        columns = open_units(gates, self.neurons)
        if self.neurons == 0 or (columns is not None and len(columns) == 0):
            return self.output.bias.expand_as(hidden)
        inner = F.gelu(F.linear(hidden, *self._input(columns)))
        if gates is not None:
            inner = inner * gates[gates.detach() != 0].repeat_interleave(self.neurons // len(gates))
        output = self.output.weight if columns is None else self.output.weight.index_select(1, columns)
        return F.linear(inner, output, self.output.bias)

    def _input(self, columns: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the first map, of the neurons `columns` only."""
        weight, bias = self.input.weight, self.input.bias
        if columns is None:
            return weight, bias
        return weight.index_select(0, columns), bias.index_select(0, columns)


class Layer(nn.Module):
    """Attention, then feed-forward, each added to its input and normalised."""

    def __init__(self, config: BBAConfig, heads: int, neurons: int) -> None:
        super().__init__()
        self.attention = SelfAttention(config, heads)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.ffn = FeedForward(config, neurons)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        gates: tuple[Tensor | None, Tensor | None],
        first_only: bool,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return hidden states, shape (B, Q, C), and the attention weights if they are asked for.

        Args:
            hidden: hidden states, shape (B, T, C).
            mask: see `SelfAttention.forward`.
            gates: of this layer's heads, and of its feed-forward blocks.
            first_only: compute the first position only, Q = 1; else all, Q = T.
            output_attentions: see `SelfAttention.forward`.
        """
        attended, weights = self.attention(hidden, mask, gates[0], first_only, output_attentions)
        if first_only:
            hidden = hidden[:, :1]
        hidden = self.attention_norm(hidden + self.dropout(attended))
        return self.ffn_norm(hidden + self.dropout(self.ffn(hidden, gates[1]))), weights


class Encoder(nn.Module):
    """Embeddings and layers; the pooled output is a tanh layer over the first token, as in BERT."""

    def __init__(self, config: BBAConfig) -> None:
        super().__init__()
        self.config = config
        self._build(config)

    def _build(self, config: BBAConfig) -> None:
        """Make the modules that a configuration names."""
        self.embeddings = Embeddings(config)
        sizes = zip(config.heads, config.ffn_widths, strict=True)
        self.layers = nn.ModuleList(Layer(config, len(kept), neurons) for kept, neurons in sizes)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        head_gates: Tensor | None = None,
        ffn_gates: Tensor | None = None,
        output_attentions: bool = False,
        first_only: bool = False,
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Encode token ids, shape (B, T).

        Args:
            input_ids: token ids, shape (B, T).
            attention_mask: 1 for tokens, 0 for padding, shape (B, T).
            token_type_ids: segment of each token, shape (B, T); None means segment 0.
            head_gates: one gate for each head that is there, layer by layer, shape (num_kept_heads,); None means open.
            ffn_gates: one gate for each block of feed-forward neurons that is there, layer by layer; None means open.
            output_attentions: also return the attention weights, at the price of slower attention.
            first_only: let the last layer compute only the first position, which is all that the pooler reads.

        Returns:
            Hidden states (B, T, C), or (B, 1, C) with `first_only`, pooled vector (B, C), and per layer the attention
            weights (B, n, T, T) of its open heads: None where they were not asked for or no head is open.
        """
        hidden = self.embeddings(input_ids, token_type_ids)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        heads = _by_layer(head_gates, [len(kept) for kept in self.config.heads])
        blocks = _by_layer(ffn_gates, self.config.ffn_widths)
        attentions = []
        for number, (layer, gates) in enumerate(zip(self.layers, zip(heads, blocks, strict=True), strict=True), 1):
            last = first_only and number == len(self.layers)
            hidden, weights = layer(hidden, mask, gates, last, output_attentions)
            attentions.append(weights)
        return hidden, torch.tanh(self.pooler(hidden[:, 0])), attentions


def _by_layer(gates: Tensor | None, sizes: Sequence[int]) -> Sequence[Tensor | None]:
    """Split gates among layers in proportion to `sizes`."""
    if gates is None:
        return [None] * len(sizes)
    unit = max(1, sum(sizes) // max(1, len(gates)))
    return gates.split([size // unit for size in sizes])


@dataclass
class SequenceClassifierOutput(ModelOutput):
    """What a classifier says of B texts; as transformers' class of this name, without the wait for its import."""

    loss: Tensor | None = None
    """Mean cross-entropy, where labels were given."""
    logits: Tensor = None  # type: ignore[assignment]
    """Shape (B, num_labels); always there: the default is transformers' way."""
    attentions: tuple[Tensor | None, ...] | None = None
    """Attention weights per layer, where they were asked for."""


class SequenceClassifier(nn.Module):
    """The encoder, a linear classifier on its pooled output, and the gates that belong to them.

    For weights that are there already; `BBAForSequenceClassification` draws fresh ones.
    """

    config: BBAConfig
    encoder_class = Encoder

    def __init__(self, config: BBAConfig) -> None:
        super().__init__()
        self.config = config
        self._build(config)

    def _build(self, config: BBAConfig) -> None:
        """Make the modules that a configuration names."""
        self.encoder = self.encoder_class(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.labels))
        self.gates = BudgetGates(config.num_kept_heads, config.num_dense_heads)
        self.ffn_gates = BudgetGates(config.num_kept_blocks, config.num_dense_blocks) if config.ffn_block else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        head_gates: Tensor | None = None,
        ffn_gates: Tensor | None = None,
        output_attentions: bool = False,
    ) -> SequenceClassifierOutput:
        """Classify token ids, shape (B, T); see `Encoder.forward` for the arguments.

        Returns:
            Logits, shape (B, num_labels), attention weights per layer if asked for, and the mean cross-entropy
            against `labels`, shape (B,), if these are given.
        """
        _, pooled, attentions = self.encoder(
            input_ids, attention_mask, token_type_ids, head_gates, ffn_gates, output_attentions, not output_attentions
        )
        logits = self.classifier(self.dropout(pooled))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, attentions=tuple(attentions) if output_attentions else None
        )
