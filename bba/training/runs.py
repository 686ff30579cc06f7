"""A run's folder: one run at a time in it, its settings beside its states, so that it can be continued."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bba.errors import TrainingError

SETTINGS = "run.json"


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all: whoever reads it meanwhile gets the old one."""
    unfinished = path.with_name(f"{path.name}.writing")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def work_folder(out: Path) -> Path:
    """Return the folder that holds a run's states until its checkpoint `out` is written."""
    return out.with_name(out.name + ".training")


@contextmanager
def open_run(folder: Path, settings: dict[str, Any], resume: bool) -> Iterator[None]:
    """Hold a run's folder for as long as the run lasts.

    Args:
        folder: from `work_folder`.
        settings: all that decides the run's result, as JSON values.
        resume: continue a run that was stopped; without one, this starts it.

    Raises:
        TrainingError: a run is going on here, one was stopped here and `resume` is not set, or the stopped one had
            other settings.
    """
    stored = folder / SETTINGS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock").acquire(timeout=0)
    except Timeout:
        raise TrainingError(f"Another run is writing to {folder}: wait for it, or give --out another name.") from None
    except OSError as error:
        raise TrainingError(
            f"The folder {folder} of the run's states cannot be made ({error.strerror or error}): "
            "give --out another place."
        ) from error
    with lock:
        if stored.exists() and not resume:
            raise TrainingError(
                f"A run was stopped in {folder}: add --resume to continue it, or remove that folder to start anew."
            )
        _check_settings(stored, settings)
        write_whole(stored, json.dumps(settings, indent=1))
        yield


def _check_settings(stored: Path, settings: dict[str, Any]) -> None:
    if not stored.exists():
        return
    before = json.loads(stored.read_text(encoding="utf-8"))
    now = json.loads(json.dumps(settings))
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        raise TrainingError(
            f"The run stopped in {stored.parent} had other settings ({', '.join(changed)}): give the same ones as "
            "then, or remove that folder to start anew."
        )
