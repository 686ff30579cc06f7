"""Masking: closed heads are multiplied by 0, but still computed. It saves nothing; it is here to be compared with."""

import copy

import torch

from bba.model import SequenceClassifier
from bba.pruning.plan import Plan


@torch.no_grad()
def mask_heads(model: SequenceClassifier, plan: Plan) -> SequenceClassifier:
    """Return a copy of the same size whose closed heads add nothing: it computes what the pruned model computes.

    The gates of 0 and 1, which multiply the heads' outputs, are multiplied into the output projection's columns. Gates
    handed to `forward` would not do: it skips the heads whose gate is 0.

    Args:
        model: stays as it is.
        plan: which heads are open; its blocks are not looked at.
    """
    masked = copy.deepcopy(model)
    for layer, (present, kept) in enumerate(zip(model.config.heads, plan.heads, strict=True)):
        gates = torch.tensor([float(head in kept) for head in present])
        output = masked.get_parameter(f"encoder.layers.{layer}.attention.output.weight")
        output.mul_(gates.repeat_interleave(model.config.head_size))
    return masked
