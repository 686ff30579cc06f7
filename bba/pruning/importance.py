"""Scoring: how much each head and each neuron matters to a trained model, and the order that follows."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bba.model import BBAConfig, SequenceClassifier
from bba.pruning.cost import unit_flops

Scores = tuple[list[Tensor], list[Tensor]]
"""For each layer the scores of its heads, shape (n,), and of its neurons, shape (F,): the greater, the longer kept."""


def importance(model: SequenceClassifier, batches: Iterable[dict[str, Tensor]]) -> Scores:
    """Return the importance of every head and of every feed-forward neuron: the mean absolute gradient of its gate.

    Michel et al. 2019 (arXiv 1905.10650), eq. 2: the expectation over texts of |d loss(x) / d gate|, taken text by
    text. Scores are divided by their layer's l2 norm, as the paper advises, so that layers compare.

    Args:
        model: the trained dense model.
        batches: model inputs with labels; small batches, as gradients are taken for each text by itself.
    """
    was_training = model.training
    model.eval()
    widths = model.config.ffn_widths
    heads, neurons = torch.zeros(model.config.num_kept_heads), torch.zeros(sum(widths))
    for batch in batches:
        for row in range(len(batch["labels"])):
            gates = [torch.ones_like(total, requires_grad=True) for total in (heads, neurons)]
            one = {name: tensor[row : row + 1] for name, tensor in batch.items()}
            loss = model(**one, head_gates=gates[0], ffn_gates=gates[1]).loss
            for total, gradient in zip((heads, neurons), torch.autograd.grad(loss, gates), strict=True):
                total += gradient.abs()
    model.train(was_training)
    return _by_layer(heads, [len(kept) for kept in model.config.heads]), _by_layer(neurons, widths)


def _by_layer(scores: Tensor, sizes: list[int]) -> list[Tensor]:
    return [layer / layer.norm().clamp_min(1e-12) for layer in scores.split(sizes)]


def per_cost(scores: Scores, config: BBAConfig, power: float) -> Scores:
    """Return scores divided by a power of what the unit costs: at 0 as they are, at 1 what counts is score per FLOP.

    A unit of the last layer is cheap, as that layer computes one position only; yet a budget counts units. The weight
    lets a model keep more of the cheap ones, so that a budget saves more.
    """

    def divided(layers: list[Tensor], costs: list[int]) -> list[Tensor]:
        return [layer / (cost / max(costs)) ** power for layer, cost in zip(layers, costs, strict=True)]

    heads, neurons = zip(scores, unit_flops(config), strict=True)
    return divided(*heads), divided(*neurons)


@torch.no_grad()
def magnitude(model: SequenceClassifier) -> Scores:
    """Return the l2 norm of all weights of every head and of every neuron: what can be said without any text."""
    weights = model.state_dict()
    heads, neurons = [], []
    for layer, kept in enumerate(model.config.heads):
        attention, ffn = f"encoder.layers.{layer}.attention", f"encoder.layers.{layer}.ffn"
        into = weights[f"{attention}.qkv.weight"].view(3, len(kept), -1).square().sum(dim=(0, 2))
        out = weights[f"{attention}.output.weight"].T.reshape(len(kept), -1).square().sum(dim=1)
        heads.append((into + out).sqrt())
        squares = (weights[f"{ffn}.input.weight"].square(), weights[f"{ffn}.output.weight"].square())
        neurons.append((squares[0].sum(dim=1) + squares[1].sum(dim=0)).sqrt())
    return heads, neurons


def chance(model: SequenceClassifier, seed: int) -> Scores:
    """Return random scores in [0, 1), to compare others with."""
    generator = torch.Generator().manual_seed(seed)
    heads = [torch.rand(len(kept), generator=generator) for kept in model.config.heads]
    return heads, [torch.rand(width, generator=generator) for width in model.config.ffn_widths]


@torch.no_grad()
def set_order(model: SequenceClassifier, scores: Scores) -> None:
    """Let a model's gates open heads and feed-forward blocks in the order of `scores`, in place.

    Neurons are sorted first, as a block is made of neighbours; a block's score is the sum of theirs.
    """
    heads, neurons = scores
    model.gates.scores.copy_(_quantiles(torch.cat(heads)))
    if model.ffn_gates is not None:
        blocks = [layer.view(-1, model.config.ffn_block).sum(dim=1) for layer in sort_neurons(model, neurons)]
        model.ffn_gates.scores.copy_(_quantiles(torch.cat(blocks)))


def _quantiles(scores: Tensor) -> Tensor:
    """Return the normal quantiles of the ranks: of a spread of about one, whatever that of the scores."""
    ranks = scores.argsort().argsort()
    return torch.special.ndtri((ranks + 0.5) / len(ranks)).float()


@torch.no_grad()
def sort_neurons(model: SequenceClassifier, neurons: Sequence[Tensor]) -> list[Tensor]:
    """Put every layer's feed-forward neurons in the order of their importance, which leaves the function as it is.

    Blocks are made of neighbours: without this, each would hold neurons that matter and neurons that do not.

    Args:
        model: changed in place.
        neurons: importance of each layer's neurons, from `importance`.

    Returns:
        The importances in their new order: from the greatest to the smallest.
    """
    in_order = [scores.sort(descending=True, stable=True) for scores in neurons]
    weights = model.state_dict()  # The model's own memory.
    for layer, (_, order) in enumerate(in_order):
        ffn = f"encoder.layers.{layer}.ffn"
        for name in (f"{ffn}.input.weight", f"{ffn}.input.bias"):
            weights[name].copy_(weights[name][order])
        weights[f"{ffn}.output.weight"].copy_(weights[f"{ffn}.output.weight"][:, order])
    return [scores for scores, _ in in_order]
