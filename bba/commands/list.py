"""`list`: the checkpoints in a folder."""

import logging
from pathlib import Path

from bba.errors import CheckpointError
from bba.output import Result, table

logger = logging.getLogger(__name__)

ROOT = Path("checkpoints")


def list_checkpoints(root: Path = ROOT) -> Result:
    """List the checkpoints in a folder.

    Args:
        root: folder that holds them.
    """
    from bba.checkpoints import checkpoint_folders, read_report

    rows = []
    for folder in checkpoint_folders(root):
        try:
            report = read_report(folder)
        except CheckpointError as error:  # The others are worth listing all the same.
            logger.warning(error)
            report = None
        best = max(report.test, key=lambda row: row.budget, default=None) if report else None
        rows.append(
            {
                "checkpoint": folder.name,
                "task": report.task if report else "unknown",
                "heads": best.heads if best else "unknown",
                "accuracy": best.accuracy if best else "unknown",
                "pruned_from": report.parent["name"] if report and report.parent else "",
            }
        )
    columns = ("checkpoint", "task", "heads", "accuracy", "pruned_from")
    text = table(columns, rows) if rows else f"No checkpoint in {root}: train one with `python -m bba train`."
    return Result({"root": str(root), "rows": rows}, text)
