"""Running a BudgetFormer over many token lists, so that company in a batch never changes what a text gets."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bba.model.budgetformer import BudgetFormerForSequenceClassification, BudgetFormerOutput, margins
from bba.model.inference import batches_by_length, pad

CLOSE = 1e-4
"""A choice that is nearer than this to another one is made again with the text alone. How a batch is padded and put
together moves the last digits of its hidden states, some 1e-6; that must change no head and no label."""


@dataclass(frozen=True)
class Chosen:
    """What a model says of N texts, and what its L policies chose for them among H heads, in the texts' order."""

    logits: Tensor
    """Shape (N, num_labels)."""
    budgets: Tensor
    """Predicted share of the heads, in (0, 1), shape (N, L)."""
    relevance: Tensor
    """Relevance of the heads, a distribution in each layer, shape (N, L, H)."""
    heads: Tensor
    """Whether a head was used, shape (N, L, H)."""
    again: int
    """Texts that were run again, alone, as their choice or label was close."""

    @property
    def counts(self) -> Tensor:
        """Number of heads that each text used in each layer, shape (N, L)."""
        return self.heads.sum(dim=2)


@torch.inference_mode()
def choose_and_classify(
    model: BudgetFormerForSequenceClassification, rows: Sequence[Sequence[int]], batch_size: int = 64
) -> Chosen:
    """Classify token lists, each with the heads that the model chooses for it.

    Args:
        model: in evaluation mode.
        rows: token ids of each text.
        batch_size: texts at a time; it changes neither heads nor labels.
    """
    config = model.config
    layers, heads = config.num_hidden_layers, config.heads_per_layer
    logits, budgets = torch.empty(len(rows), len(config.labels)), torch.empty(len(rows), layers)
    relevance, gates = torch.empty(len(rows), layers, heads), torch.empty(len(rows), layers, heads)

    def run(batch: list[int]) -> BudgetFormerOutput:
        output: BudgetFormerOutput = model(*pad([rows[row] for row in batch], config.pad_token_id))
        for whole, part in (
            (logits, output.logits),
            (budgets, output.budgets),
            (relevance, output.relevance),
            (gates, output.gates),
        ):
            whole[batch] = part
        return output

    again = []
    for batch in batches_by_length(rows, batch_size):
        output = run(batch)
        if len(batch) > 1:
            again += [row for row, close in zip(batch, _is_close(output).tolist(), strict=True) if close]
    for row in again:
        run([row])
    return Chosen(logits, budgets, relevance.softmax(dim=2), gates.bool(), len(again))


def _is_close(output: BudgetFormerOutput) -> Tensor:
    """Return which texts' heads or label could be others after a change in the last digits, shape (B,)."""
    per_layer = margins(output.budgets.flatten(), output.relevance.flatten(0, 1)).view_as(output.budgets)
    first, second = output.logits.topk(2, dim=1).values.unbind(dim=1)
    return torch.minimum(per_layer.amin(dim=1), first - second) < CLOSE
