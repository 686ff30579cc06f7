"""Scoring: how much each head matters to a trained model."""

from collections.abc import Iterable

import torch
from torch import Tensor

from bba.model import BBAForSequenceClassification


def head_importance(model: BBAForSequenceClassification, batches: Iterable[dict[str, Tensor]]) -> Tensor:
    """Return the importance of every head: the mean absolute gradient of the loss with respect to its gate.

    Michel et al. 2019 (arXiv 1905.10650), eq. 2: the expectation over texts of |d loss(x) / d gate|, taken text by
    text. Scores are divided by their layer's l2 norm, as the paper advises, so that layers compare.

    Args:
        model: the trained dense model.
        batches: model inputs with labels; small batches, as gradients are taken for each text by itself.

    Returns:
        Scores, shape (num_kept_heads,).
    """
    was_training = model.training
    model.eval()
    total = torch.zeros(model.config.num_kept_heads)
    for batch in batches:
        for row in range(len(batch["labels"])):
            gates = torch.ones(len(total), requires_grad=True)
            loss = model(**{name: tensor[row : row + 1] for name, tensor in batch.items()}, head_gates=gates).loss
            total += torch.autograd.grad(loss, gates)[0].abs()
    model.train(was_training)
    layers = total.split([len(kept) for kept in model.config.heads])
    return torch.cat([scores / scores.norm().clamp_min(1e-12) for scores in layers])
