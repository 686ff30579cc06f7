"""BudgetFormer: every text gets its own number of attention heads in each layer, and its own choice of heads.

*Adaptive Head Budgeting for Efficient Multi-Head Attention* (arXiv 2604.22583). A small policy in each layer reads the
text and predicts a budget and how relevant each head is; the most relevant ones are used. Training explores with noise
and soft gates and then exploits with the greedy choice. At prediction a head is computed for those texts only that use
it. The form of the policy, of the noise and of the soft gates is this package's.

The cost term pushes the budgets of all texts alike. So that they do not become one number, a policy starts at the
target, reads features that are standardised over texts, and does not move the hidden states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification
from transformers.utils.generic import ModelOutput

from bba.model.configuration import BudgetFormerConfig
from bba.model.modeling import SelfAttention, SequenceClassifier
from bba.model.pretrained import BBAEncoder, BBAPreTrainedModel


class Exploration(NamedTuple):
    """How gates are shaped in training; without it they are the greedy choice, as at prediction."""

    temperature: float
    """Softness of the gates, above 0."""
    noise: float
    """Size of the noise on budgets and relevance; 0 for none."""
    hard: bool
    """Gates of exactly 0 or 1 with the soft gates' gradient, or soft gates."""


@dataclass
class BudgetFormerOutput(ModelOutput):
    """What the model says of B texts, and what its policies chose for them in L layers of H heads.

    All but the loss is always there; the defaults are transformers' way.
    """

    loss: Tensor | None = None
    """Mean cross-entropy, where labels were given."""
    logits: Tensor = None  # type: ignore[assignment]
    """Shape (B, num_labels)."""
    budgets: Tensor = None  # type: ignore[assignment]
    """Predicted share of the heads, in (0, 1), shape (B, L)."""
    relevance: Tensor = None  # type: ignore[assignment]
    """Relevance of the heads as logits, shape (B, L, H)."""
    gates: Tensor = None  # type: ignore[assignment]
    """How open each head was, shape (B, L, H)."""


# Choosing


def heads_at(budgets: Tensor, total: int) -> Tensor:
    """Return k = ceil(budget · total) in 1..total: how many heads a predicted budget uses, shape as `budgets`."""
    return (budgets * total).ceil().clamp(1, total)


def top_k_gates(budgets: Tensor, relevance: Tensor) -> Tensor:
    """Return gates of exactly 0 and 1 with the most relevant heads open, shape (B, H); ties go to the lower head.

    Args:
        budgets: shape (B,).
        relevance: logits, shape (B, H).
    """
    ranks = relevance.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (ranks < heads_at(budgets, relevance.shape[1])[:, None]).to(relevance.dtype)


def soft_top_k_gates(budgets: Tensor, relevance: Tensor, temperature: float) -> Tensor:
    """Return gates between 0 and 1 whose mean over the heads is each text's budget, shape (B, H).

    `sigmoid((relevance + offset) / temperature)` with an offset for each text, found by bisection. One Newton step at
    the solution carries the gradient to budgets and relevance, as in `bba.model.gates`.

    Args:
        budgets: in (0, 1), shape (B,).
        relevance: logits, shape (B, H).
        temperature: above 0.
    """
    tiny = torch.finfo(torch.float32).eps
    wanted, scores = budgets.double().clamp(tiny, 1 - tiny)[:, None], relevance.double()
    offset = _solve_offsets(scores.detach(), wanted.detach(), temperature)
    gates = torch.sigmoid((scores + offset) / temperature)
    slope = (gates * (1 - gates)).mean(dim=1, keepdim=True).detach() / temperature
    error = wanted - gates.mean(dim=1, keepdim=True)
    offset = offset + (error - error.detach()) / slope.clamp_min(tiny)
    return torch.sigmoid((scores + offset) / temperature).to(relevance.dtype)


def _solve_offsets(scores: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Find for each row the offset with mean(sigmoid((scores + offset) / temperature)) = wanted, shape (B, 1)."""
    logit = temperature * torch.logit(wanted)
    low, high = logit - scores.amax(dim=1, keepdim=True), logit - scores.amin(dim=1, keepdim=True)
    for _ in range(40):
        middle = (low + high) / 2
        below = torch.sigmoid((scores + middle) / temperature).mean(dim=1, keepdim=True) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def margins(budgets: Tensor, relevance: Tensor) -> Tensor:
    """Return how far each choice is from another one, shape (B,): in heads or in logits, whichever is less.

    Args:
        budgets: shape (B,).
        relevance: logits, shape (B, H).
    """
    total = relevance.shape[1]
    if total == 1:
        return torch.full_like(budgets, torch.inf)
    scaled = budgets * total
    to_other_count = (scaled - scaled.round().clamp(1, total - 1)).abs()
    ordered = relevance.sort(dim=1, descending=True).values
    count = heads_at(budgets, total).long()[:, None]
    gaps = F.pad(ordered[:, :-1] - ordered[:, 1:], (0, 1), value=torch.inf)
    return torch.minimum(to_other_count, gaps.gather(1, count - 1).squeeze(1))


# Modules


def masked_mean(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the mean over a text's own tokens, shape (B, C); hidden (B, T, C), attention_mask (B, T)."""
    if attention_mask is None:
        return hidden.mean(dim=1)
    shown = attention_mask[..., None].to(hidden.dtype)
    return (hidden * shown).sum(dim=1) / shown.sum(dim=1)


class HeadPolicy(nn.Module):
    """Reads a text and says what share of a layer's heads it needs, and how relevant each of them is."""

    def __init__(self, config: BudgetFormerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.policy_size)
        self.budget = nn.Linear(config.policy_size, 1)
        self.relevance = nn.Linear(config.policy_size, config.heads_per_layer)

    def start(self, budget: float, relevance: Tensor, means: Tensor) -> None:
        """Give every text about this budget and relevance, and make texts look different to the inner layer.

        Mean hidden states of texts are much alike: with plain fresh weights the inner layer says nearly the same of all
        texts, and all that the policy learns is one budget for all of them.

        Args:
            budget: in (0, 1).
            relevance: logits, shape (H,).
            means: mean hidden states of texts, from `masked_mean`, shape (N, C); N is at least 2.
        """
        self.inner.weight.div_(self.inner(means).std(dim=0)[:, None].clamp_min(1e-6))
        self.inner.bias.sub_(self.inner(means).mean(dim=0))
        self.budget.bias.fill_(math.log(budget / (1 - budget)))
        self.relevance.bias.copy_(relevance)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, noise: float) -> tuple[Tensor, Tensor]:
        """Return budgets, shape (B,), and relevance logits, shape (B, H), of hidden states, shape (B, T, C).

        Args:
            hidden: hidden states that go into the layer.
            attention_mask: 1 for tokens, 0 for padding, shape (B, T); None where there is no padding.
            noise: size of the Gumbel noise on relevance and of the logistic noise on the budget's logit.
        """
        means = masked_mean(hidden.detach(), attention_mask)  # Or the cost term would move hidden states of all texts.
        inner = torch.tanh(self.inner(means))
        budget, relevance = self.budget(inner).squeeze(1), self.relevance(inner)
        if noise > 0:
            budget = budget + noise * (_gumbel_like(budget) - _gumbel_like(budget))
            relevance = relevance + noise * _gumbel_like(relevance)
        return torch.sigmoid(budget), relevance


def _gumbel_like(values: Tensor) -> Tensor:
    return -torch.empty_like(values).exponential_().clamp_min(torch.finfo(values.dtype).tiny).log()


class ChosenHeadsAttention(SelfAttention):
    """Self-attention whose gates differ from text to text."""

    def forward(
        self, hidden: Tensor, mask: Tensor | None, gates: Tensor | None, first_only: bool, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output, shape (B, Q, C); see `SelfAttention.forward`, but for the gates.

        In training every head is computed and gated. In evaluation mode texts that use the same heads are computed
        together, with the weights of these heads only, so that a head nobody uses costs nothing.

        Args:
            hidden: hidden states, shape (B, T, C).
            mask: True where a position may be attended to, shape (B, 1, 1, T); None lets all be.
            gates: how open each head is for each text, shape (B, H); in evaluation mode 0 or 1.
            first_only: attend from the first position only, Q = 1; else from all, Q = T.
            output_attentions: not to be had here, as texts have different heads.

        Raises:
            ValueError: there are no gates, or attention weights are asked for.
        """
        if gates is None or output_attentions:
            raise ValueError("Attention over chosen heads needs gates and returns no attention weights.")
        if self.training:
            return self._gated(hidden, mask, gates, first_only), None
        choices, group = torch.unique(gates, dim=0, return_inverse=True)
        if len(choices) == 1:
            return super().forward(hidden, mask, choices[0], first_only, False)
        attended = hidden.new_empty(hidden.shape[0], 1 if first_only else hidden.shape[1], hidden.shape[2])
        for number, choice in enumerate(choices):
            rows = (group == number).nonzero().squeeze(1)
            own_mask = None if mask is None else mask[rows]
            attended[rows], _ = super().forward(hidden[rows], own_mask, choice, first_only, False)
        return attended, None

    def _gated(self, hidden: Tensor, mask: Tensor | None, gates: Tensor, first_only: bool) -> Tensor:
        query, key, value = self._project(hidden, None, first_only)
        value = value * gates[:, :, None, None]  # A head's output is linear in its values.
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.config.attention_dropout
        )
        return self.output(attended.transpose(1, 2).flatten(2))


class BudgetFormerForSequenceClassification(BBAPreTrainedModel):
    """The encoder with a policy in front of each layer, and a linear classifier on its pooled output."""

    config: BudgetFormerConfig
    config_class = BudgetFormerConfig

    def __init__(self, config: BudgetFormerConfig) -> None:
        super().__init__(config)
        self.encoder = BBAEncoder(config)
        for layer in self.encoder.layers:
            layer.attention = ChosenHeadsAttention(config, config.heads_per_layer)
        self.policies = nn.ModuleList(HeadPolicy(config) for _ in self.encoder.layers)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, len(config.labels))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        exploration: Exploration | None = None,
    ) -> BudgetFormerOutput:
        """Classify token ids, shape (B, T), each text with heads of its own.

        Args:
            input_ids: token ids.
            attention_mask: 1 for tokens, 0 for padding, shape (B, T).
            labels: true classes, shape (B,).
            exploration: how gates are shaped in training; without it, and at prediction, they are the greedy choice.
        """
        hidden = self.encoder.embeddings(input_ids, None)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        chosen = []
        for number, (policy, layer) in enumerate(zip(self.policies, self.encoder.layers, strict=True), start=1):
            budgets, relevance = policy(hidden, attention_mask, exploration.noise if exploration else 0.0)
            gates = _gates(budgets, relevance, exploration)
            hidden, _ = layer(hidden, mask, (gates, None), number == len(self.policies), False)
            chosen.append((budgets, relevance, gates))
        pooled = torch.tanh(self.encoder.pooler(hidden[:, 0]))
        logits = self.classifier(self.dropout(pooled))
        stacked = (torch.stack(values, dim=1) for values in zip(*chosen, strict=True))
        return BudgetFormerOutput(None if labels is None else F.cross_entropy(logits, labels), logits, *stacked)

    @classmethod
    def from_dense(
        cls,
        dense: SequenceClassifier,
        share: float,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
    ) -> "BudgetFormerForSequenceClassification":
        """Return a BudgetFormer with the weights of a dense model and policies that prefer heads in its gates' order.

        Args:
            dense: stays as it is.
            share: about the share of the heads that texts get in each layer, above 0 and up to 1.
            input_ids: texts that show the policies how texts differ, shape (B, T); B is at least 2.
            attention_mask: 1 for tokens, 0 for padding, shape (B, T).

        Raises:
            ValueError: heads are gone, or layers have different numbers of them.
        """
        own = {"model_type": cls.config_class.model_type, "ffn_block": 0, "kept_blocks": None}
        model = cls(BudgetFormerConfig.from_dict({**dense.config.to_dict(), **own}))
        model.encoder.load_state_dict(dense.encoder.state_dict())
        model.classifier.load_state_dict(dense.classifier.state_dict())
        total = model.config.heads_per_layer
        budget = (max(1.0, share * total) - 0.5) / total  # Rounded up, on average, it is that share.
        model.eval()._start_policies(budget, dense.gates.scores.split(total), input_ids, attention_mask)
        return model.train(dense.training)

    @torch.no_grad()
    def _start_policies(
        self, budget: float, orders: Sequence[Tensor], input_ids: Tensor, attention_mask: Tensor | None
    ) -> None:
        """Start the policies of all layers, with the hidden states that texts have while all heads are open."""
        hidden = self.encoder.embeddings(input_ids, None)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        for policy, layer, order in zip(self.policies, self.encoder.layers, orders, strict=True):
            policy.start(budget, order, masked_mean(hidden, attention_mask))  # type: ignore[operator]
            hidden, _ = layer(hidden, mask, (torch.ones(len(hidden), len(order)), None), False, False)


def _gates(budgets: Tensor, relevance: Tensor, exploration: Exploration | None) -> Tensor:
    if exploration is None:
        return top_k_gates(budgets, relevance)
    soft = soft_top_k_gates(budgets, relevance, exploration.temperature)
    return top_k_gates(budgets, relevance) + soft - soft.detach() if exploration.hard else soft


AutoModelForSequenceClassification.register(BudgetFormerConfig, BudgetFormerForSequenceClassification)
