"""`estimate`: how long a training takes on this machine, and how to fit it into some minutes."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bba.errors import TrainingError
from bba.output import Result
from bba.settings import WORD, usual_settings

if TYPE_CHECKING:
    from bba.training.speed import Plan


def estimate(
    task: str,
    backbone: str = WORD,
    minutes: float = 5.0,
    data: Path | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Result:
    """Time the first steps of a training on this machine and say how long it takes; nothing is kept.

    Args:
        task: as for `train`.
        backbone: as for `train`.
        minutes: what may be spent; the stages are shortened to fit in.
        data: as for `train`.
        text_column: as for `train`.
        label_column: as for `train`.
    """
    import psutil
    from transformers.utils.logging import disable_progress_bar

    from bba.data.sources import load_task
    from bba.training.speed import measure_speed, spend

    if not 0 < minutes < float("inf"):
        raise TrainingError(f"--minutes is {minutes}: give a number above 0.")
    disable_progress_bar()
    texts = load_task(task, data, text_column=text_column, label_column=label_column)
    speed = measure_speed(texts, backbone, psutil.Process().create_time())
    splits = {name: len(getattr(texts, name)) for name in ("train", "validation", "test")}
    plan = spend(minutes, speed, splits, usual_settings(task, backbone)[1])
    values = {"speed": asdict(speed), "splits": splits, "minutes": plan.total / 60, "plan": asdict(plan)}
    return Result(values, _text(plan, sum(splits.values()), task, backbone))


def _text(plan: "Plan", rows: int, task: str, backbone: str) -> str:
    lines = [f"{plan.total / 60:.1f} minutes on this machine:"]
    lines += [f"  {seconds:7.1f} s  {name}" for name, seconds in plan.seconds.items()]
    if plan.rows < rows:
        lines.append(f"Of the {rows:,} rows, {plan.rows:,} can be used in that time: take a part of the file.")
    stages = [f"--training.{stage}.epochs {getattr(plan.training, stage).epochs:g}" for stage in plan.steps]
    more = f"--training.min_steps {plan.training.min_steps} --training.save_every {plan.training.save_every}"
    lines.append(f"python -m bba train --task {task} --backbone {backbone} {' '.join(stages)} {more} --out DIR")
    return "\n".join(lines)
