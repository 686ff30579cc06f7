"""`list`: the checkpoints in a folder."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bba.errors import CheckpointError
from bba.output import Result, table

if TYPE_CHECKING:
    from bba.measure.budgetformer_report import BudgetFormerReport

logger = logging.getLogger(__name__)

ROOT = Path("checkpoints")
UNKNOWN = "unknown"


def list_checkpoints(root: Path = ROOT) -> Result:
    """List the checkpoints in a folder.

    Args:
        root: folder that holds them.
    """
    from bba.checkpoints import checkpoint_folders

    rows = [{"checkpoint": folder.name, **_told(folder)} for folder in checkpoint_folders(root)]
    columns = ("checkpoint", "task", "heads", "accuracy", "pruned_from")
    text = table(columns, rows) if rows else f"No checkpoint in {root}: train one with `python -m bba train`."
    return Result({"root": str(root), "rows": rows}, text)


def _told(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint's report says; nothing of a damaged one, as the others are worth listing."""
    from bba.checkpoints import is_budgetformer, read_budgetformer_report, read_report

    try:
        if is_budgetformer(folder):
            return _of_budgetformer(read_budgetformer_report(folder))
        report = read_report(folder)
    except CheckpointError as error:
        logger.warning(error)
        return {"task": UNKNOWN, "heads": UNKNOWN, "accuracy": UNKNOWN, "pruned_from": ""}
    best = max(report.test, key=lambda row: row.budget, default=None) if report else None
    return {
        "task": report.task if report else UNKNOWN,
        "heads": best.heads if best else UNKNOWN,
        "accuracy": best.accuracy if best else UNKNOWN,
        "pruned_from": report.parent["name"] if report and report.parent else "",
    }


def _of_budgetformer(report: "BudgetFormerReport | None") -> dict[str, Any]:
    """Return the same of a BudgetFormer, whose heads are the mean of its texts."""
    return {
        "task": report.task if report else UNKNOWN,
        "heads": report.test.heads if report else UNKNOWN,
        "accuracy": report.test.accuracy if report else UNKNOWN,
        "pruned_from": "",
    }
