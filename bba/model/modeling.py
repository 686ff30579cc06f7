"""A BERT-compatible encoder and text classifier whose layers may have any number of heads, none included.

Post-LayerNorm, GELU, learned positions, as in BERT (Devlin et al. 2019): on the same weights it gives the same logits
as `transformers.BertForSequenceClassification`. The projections of query, key and value are one matrix product.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from bba.model.configuration import BBAConfig
from bba.model.gates import HeadGates


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


class SelfAttention(nn.Module):
    """Multi-head self-attention over the n heads that this layer has."""

    def __init__(self, config: BBAConfig, heads: int) -> None:
        super().__init__()
        self.config = config
        self.heads = heads
        width = heads * config.head_size
        self.qkv = Projection(config.hidden_size, 3 * width)
        self.output = Projection(width, config.hidden_size)

    def forward(
        self, hidden: Tensor, mask: Tensor | None, gates: Tensor | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output, shape (B, T, C), and the attention weights if they are asked for.

        Args:
            hidden: hidden states, shape (B, T, C).
            mask: True where a position may be attended to, shape (B, 1, 1, T); None lets all be.
            gates: how open each head is, shape (n,); it multiplies the head's output before the output projection.
            output_attentions: compute with plain matrix products and return the weights, shape (B, n, T, T).
        """
        if self.heads == 0:
            return self.output.bias.expand_as(hidden), None
        B, T, _ = hidden.shape
        qkv = self.qkv(hidden).view(B, T, 3, self.heads, self.config.head_size)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, n, T, D)
        dropout = self.config.attention_dropout if self.training else 0.0
        weights = None
        if output_attentions:
            attended, weights = eager_attention(query, key, value, mask, dropout)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        if gates is not None:
            attended = attended * gates[:, None, None]
        return self.output(attended.transpose(1, 2).reshape(B, T, -1)), weights  # (B, T, n * D) -> (B, T, C)


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, config: BBAConfig, neurons: int) -> None:
        super().__init__()
        self.neurons = neurons
        self.input = Projection(config.hidden_size, neurons)
        self.output = Projection(neurons, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states, shape (B, T, C), to the same shape."""
        if self.neurons == 0:
            return self.output.bias.expand_as(hidden)
        return self.output(F.gelu(self.input(hidden)))


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
        self, hidden: Tensor, mask: Tensor | None, gates: Tensor | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return hidden states, shape (B, T, C), and the attention weights if they are asked for."""
        attended, weights = self.attention(hidden, mask, gates, output_attentions)
        hidden = self.attention_norm(hidden + self.dropout(attended))
        return self.ffn_norm(hidden + self.dropout(self.ffn(hidden))), weights


class BBAPreTrainedModel(PreTrainedModel):
    """What transformers needs to know to initialise, save and load these models."""

    config: BBAConfig
    config_class = BBAConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _no_split_modules = ["Layer"]  # noqa: RUF012 - the base class has a list

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])
        if isinstance(module, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, HeadGates):
            nn.init.zeros_(module.scores)


class BBAEncoder(BBAPreTrainedModel):
    """Embeddings and layers; the pooled output is a tanh layer over the first token, as in BERT."""

    def __init__(self, config: BBAConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        sizes = zip(config.heads, config.ffn_sizes, strict=True)
        self.layers = nn.ModuleList(Layer(config, len(kept), neurons) for kept, neurons in sizes)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        head_gates: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Encode token ids, shape (B, T).

        Args:
            input_ids: token ids, shape (B, T).
            attention_mask: 1 for tokens, 0 for padding, shape (B, T).
            token_type_ids: segment of each token, shape (B, T); None means segment 0.
            head_gates: one gate for each head that is there, layer by layer, shape (num_kept_heads,); None means open.
            output_attentions: also return the attention weights, at the price of slower attention.

        Returns:
            Hidden states (B, T, C), pooled vector (B, C), and per layer the attention weights (B, n, T, T): None
            where they were not asked for or the layer has no head.
        """
        hidden = self.embeddings(input_ids, token_type_ids)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        attentions = []
        for layer, gates in zip(self.layers, self._gates_by_layer(head_gates), strict=True):
            hidden, weights = layer(hidden, mask, gates, output_attentions)
            attentions.append(weights)
        return hidden, torch.tanh(self.pooler(hidden[:, 0])), attentions

    def _gates_by_layer(self, head_gates: Tensor | None) -> Sequence[Tensor | None]:
        if head_gates is None:
            return [None] * len(self.layers)
        return head_gates.split([len(kept) for kept in self.config.heads])


class BBAForSequenceClassification(BBAPreTrainedModel):
    """The encoder, a linear classifier on its pooled output, and the head gates that belong to them."""

    def __init__(self, config: BBAConfig) -> None:
        super().__init__(config)
        self.encoder = BBAEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.labels))
        self.gates = HeadGates(config.num_kept_heads, config.num_dense_heads)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        head_gates: Tensor | None = None,
        output_attentions: bool = False,
    ) -> SequenceClassifierOutput:
        """Classify token ids, shape (B, T); see `BBAEncoder.forward` for the arguments.

        Returns:
            Logits, shape (B, num_labels), attention weights per layer if asked for, and the mean cross-entropy
            against `labels`, shape (B,), if these are given.
        """
        _, pooled, attentions = self.encoder(input_ids, attention_mask, token_type_ids, head_gates, output_attentions)
        logits = self.classifier(self.dropout(pooled))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, attentions=tuple(attentions) if output_attentions else None
        )
