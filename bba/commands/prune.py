"""`prune`: a smaller checkpoint."""

from pathlib import Path

from bba.commands.typed import asked_for
from bba.output import Result


def prune(checkpoint: Path, budget: str, out: Path, ffn_budget: str | None = None) -> Result:
    """Write a smaller checkpoint that has only the heads and feed-forward blocks of a setting.

    Args:
        checkpoint: folder of the checkpoint.
        budget: head budget in (0, 1], or a pair HEAD:FFN.
        out: folder to write.
        ffn_budget: FFN budget in (0, 1]; without it the feed-forward part stays as it is.
    """
    from bba.predict import BudgetedClassifier
    from bba.pruning.cost import encoder_share

    head_budget, asked_ffn = asked_for(budget, ffn_budget)
    smaller = BudgetedClassifier.from_pretrained(checkpoint).prune(head_budget or 1.0, asked_ffn)
    smaller.save_pretrained(out)
    config = smaller.checkpoint.model.config
    values = {
        "checkpoint": str(out),
        "heads": config.num_kept_heads,
        "of": config.num_dense_heads,
        "blocks": config.num_kept_blocks,
        "cost": smaller.largest_budget,
        "encoder_cost": encoder_share(config),
        "parameters": sum(weights.numel() for weights in smaller.checkpoint.model.parameters()),
    }
    return Result(
        values,
        f"{out} keeps {values['heads']} of {values['of']} heads (cost {values['cost']:.3f}) and "
        f"{values['encoder_cost']:.3f} of the encoder's FLOPs; it has {values['parameters']:,} parameters.",
    )
