"""Trainings in processes of their own: they survive the page that started them, and the server.

A job is a folder, ROOT/.jobs/NAME, and its checkpoint becomes ROOT/NAME. All that is known of it lies in files, written
whole or not at all, so that any process can watch it. One job runs at a time on a machine. By hand, a stopped one goes
on with `python -m bba train --config ROOT/.jobs/NAME/run.yaml --resume`.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import psutil
import yaml
from filelock import FileLock, Timeout

from bba.errors import TrainingError
from bba.settings import ModelSettings, TrainSettings
from bba.training.progress import Progress, read_progress
from bba.training.runs import work_folder, write_whole
from bba.training.speed import STAGES, Speed

PLACE = Path(tempfile.gettempdir()) / "bba-training"
"""Beginning of the names of files that are one for the machine: which job runs on it, and locks."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")
SOURCE = Path(__file__).parents[1]
"""Where `python -m bba` finds this package, installed or not."""
STOP_SECONDS = 15

Status = Literal["running", "stopped", "failed", "finished"]


@dataclass(frozen=True)
class Request:
    """What is to be trained, and how long that should take."""

    name: str
    """Of the checkpoint."""
    file: str
    """Name of the file of examples, as its owner calls it."""
    backbone: str
    model: ModelSettings
    training: TrainSettings
    seconds: dict[str, float]
    """Expected seconds of start, dense, soft, hard and measuring."""
    owner: str
    """Key of the visitor who asks, the only one to be shown the job."""


@dataclass(frozen=True)
class State:
    """How far a job is."""

    status: Status
    stage: str
    """start, dense, soft, hard or measuring."""
    progress: Progress | None
    """Of the stage that runs or ran last; None before the first."""
    share: float
    """Share of the expected time that is over, in [0, 1]."""
    seconds_left: float
    """Expected, at the speed of the stage that runs."""
    problem: str | None = None
    """Of a failed job: what went wrong, in a sentence."""


@dataclass(frozen=True)
class Job:
    """A training, by its place."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """The folder of the job's own files."""
        return self.root / ".jobs" / self.name

    @property
    def out(self) -> Path:
        """The checkpoint, when it is finished."""
        return self.root / self.name

    @property
    def file(self) -> str:
        """Name of the file of examples, as its owner calls it."""
        return str(self._request()["file"])

    @property
    def owner(self) -> str:
        """Key of the visitor who started it."""
        return str(self._request()["owner"])

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that its parts were expected to take, in their order."""
        return dict(self._request()["seconds"])

    def _request(self) -> dict[str, Any]:
        return json.loads((self.folder / "request.json").read_text(encoding="utf-8"))


def check_name(root: Path, name: str) -> None:
    """Raise a TrainingError if `name` is no name for a new checkpoint in `root`."""
    if not NAME.fullmatch(name):
        raise TrainingError(
            "A checkpoint's name has 1 to 40 letters (a to z), digits and dashes, and does not begin with a dash: "
            "choose such a name."
        )
    taken = {path.name.casefold() for path in root.iterdir()} if root.is_dir() else set()
    taken |= {job.name.casefold() for job in jobs_in(root)}
    if name.casefold() in taken or work_folder(root / name).name.casefold() in taken:
        raise TrainingError(
            f"There is something called {name} already, and nothing is overwritten: choose another name."
        )


def jobs_in(root: Path) -> list[Job]:
    """Return the jobs whose checkpoints belong into `root`, the newest first.

    A finished one whose checkpoint was removed is none any more.
    """
    stored = sorted(root.glob(".jobs/*/request.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    jobs = [Job(root, path.parent.name) for path in stored]
    return [job for job in jobs if job.out.is_dir() or not _result(job)]


def start(root: Path, request: Request, examples: pd.DataFrame) -> Job:
    """Start a training.

    Args:
        root: folder of checkpoints.
        request: what to train.
        examples: string columns `text` and `label`; they are stored beside the job until it is finished.

    Raises:
        TrainingError: the name will not do, another job runs on this machine, or nothing can be written.
    """
    job = Job(root, request.name)
    with _alone():
        check_name(root, request.name)
        _check_alone()
        shutil.rmtree(job.folder, ignore_errors=True)  # Of a finished job whose checkpoint was removed.
        try:
            _write(job, request, examples)
        except OSError as error:
            shutil.rmtree(job.folder, ignore_errors=True)
            raise TrainingError(
                f"The training cannot be prepared in {root} ({error.strerror or error}): make room, or ask whoever "
                "runs this server."
            ) from error
        _launch(job)
    return job


def _write(job: Job, request: Request, examples: pd.DataFrame) -> None:
    data = job.folder / "data" / _safe(request.file)
    data.parent.mkdir(parents=True)
    _write_examples(data, examples)
    run: dict[str, Any] = {"task": str(data.resolve()), "out": str(job.out.resolve()), "backbone": request.backbone}
    run |= {"model": asdict(request.model), "training": asdict(request.training)}
    run |= {"text_column": "text", "label_column": "label"}
    write_whole(job.folder / "run.yaml", yaml.safe_dump(run, allow_unicode=True))
    told = {"file": request.file, "seconds": request.seconds, "owner": request.owner}
    write_whole(job.folder / "request.json", json.dumps(told))


def _write_examples(path: Path, examples: pd.DataFrame) -> None:
    """Write examples so that they are read as they are; unquoted, a lone carriage return would end a row."""
    examples[["text", "label"]].to_csv(path, index=False, encoding="utf-8", quoting=csv.QUOTE_ALL)


def _safe(file: str) -> str:
    """Return a name for the file of examples that is like the owner's and fit for any disk."""
    return (re.sub(r"[^A-Za-z0-9]+", "-", Path(file).stem).strip("-")[:40] or "examples") + ".csv"


def resume(job: Job) -> None:
    """Go on with a job that was stopped or failed.

    Raises:
        TrainingError: another one runs on this machine.
    """
    with _alone():
        _check_alone()
        _launch(job)


def measured_speed(examples: pd.DataFrame, backbone: str, waiting: Callable[[], None]) -> tuple[Speed, dict[str, int]]:
    """Time the first steps of a training in a process of its own, with the threads that a training has.

    Args:
        examples: string columns `text` and `label`.
        backbone: see `first_model`.
        waiting: called again and again meanwhile; what it raises ends the process.

    Returns:
        The speed, and how many texts train, validation and test get.

    Raises:
        TrainingError: a job runs on this machine, or these examples cannot be trained on.
    """
    _check_alone()
    with _alone_in_timing(waiting), tempfile.TemporaryDirectory(prefix="bba-speed-") as folder:
        data = Path(folder) / "examples.csv"
        _write_examples(data, examples)
        command = [sys.executable, "-m", "bba", "estimate", "--task", str(data), "--backbone", backbone, "--json"]
        process = subprocess.Popen(
            command, cwd=SOURCE, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            while process.poll() is None:
                waiting()
                time.sleep(0.2)
        finally:
            process.kill()
            said, log = process.communicate()
    if process.returncode:
        raise TrainingError(f"The training cannot be timed: {_last_line(log) or 'its process was ended from outside'}")
    values = json.loads(said)
    return Speed(**values["speed"]), values["splits"]


@contextmanager
def _alone_in_timing(waiting: Callable[[], None]) -> Iterator[None]:
    """Wait until nobody else times a training, as two at once would both seem slow."""
    lock, held = FileLock(f"{PLACE}-speed.lock"), None
    while held is None:
        waiting()
        with suppress(Timeout):
            held = lock.acquire(timeout=0.2)
    with held:
        yield


def _alone() -> FileLock:
    """Return the lock that is held while a job's files change hands; it is one for the machine."""
    return FileLock(f"{PLACE}.lock")


def running() -> Job | None:
    """Return the job that runs on this machine, or None."""
    stored = _read(Path(f"{PLACE}.json"))
    return Job(Path(stored["root"]), stored["name"]) if stored and _process(stored) else None


def _check_alone() -> None:
    if running() is not None:
        raise TrainingError("A training is running on this machine, which does one at a time: wait until it has ended.")


def _environment() -> dict[str, str]:
    return {**os.environ, "TQDM_DISABLE": "1"}  # A log is read by lines, and a bar is one that never ends.


def _command(job: Job) -> list[str]:
    return [sys.executable, "-m", "bba", "train", "--config", str(job.folder / "run.yaml"), "--resume", "--json"]


def _launch(job: Job) -> None:
    for name in ("stopped", "ended.json"):
        (job.folder / name).unlink(missing_ok=True)
    with (job.folder / "result.json").open("w") as result, (job.folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            _command(job),
            cwd=SOURCE,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=log,
            start_new_session=True,
        )
    identity: dict[str, Any] = {"root": str(job.root.resolve()), "name": job.name}
    identity |= {"pid": process.pid, "created": psutil.Process(process.pid).create_time()}
    write_whole(job.folder / "process.json", json.dumps(identity))
    write_whole(Path(f"{PLACE}.json"), json.dumps(identity))
    threading.Thread(target=_note_end, args=(job, process), daemon=True).start()


def _note_end(job: Job, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the process and store its exit status; where the server ends first, nobody does.

    Meanwhile the job may have been discarded, or resumed with another process: then there is nothing to say any more.
    """
    status = process.wait()
    with _alone():
        current = _read(job.folder / "process.json")
        if current is not None and current["pid"] == process.pid:
            write_whole(job.folder / "ended.json", json.dumps({"status": status}))


def stop(job: Job) -> None:
    """End a job's process; what it has trained up to its last saved state is kept for `resume`."""
    process = _process(_read(job.folder / "process.json"))
    if process is None:
        return
    (job.folder / "stopped").touch()
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


def discard(job: Job) -> None:
    """Stop a job and remove its files and all it has trained so far, but not a finished checkpoint."""
    stop(job)
    with _alone():
        shutil.rmtree(job.folder, ignore_errors=True)
        shutil.rmtree(work_folder(job.out), ignore_errors=True)


def state(job: Job) -> State:
    """Return how far a job is. The examples of a finished one are removed: they are not needed any more."""
    alive = _process(_read(job.folder / "process.json")) is not None
    stage, progress = _stage(job)
    if not alive and job.out.is_dir():
        shutil.rmtree(job.folder / "data", ignore_errors=True)
        return State("finished", stage, progress, 1.0, 0.0)
    over, left = _times(job.seconds, stage, progress)
    share = over / max(over + left, 1e-9)
    if alive:
        return State("running", stage, progress, share, left)
    if (job.folder / "stopped").exists():
        return State("stopped", stage, progress, share, left)
    return State("failed", stage, progress, share, left, _problem(job))


def _stage(job: Job) -> tuple[str, Progress | None]:
    """Return the last stage that was begun, and how far it is."""
    work = work_folder(job.out)
    for number, stage in reversed(list(enumerate(STAGES, start=1))):
        progress = read_progress(work / f"{number}-{stage}")
        if progress is not None:
            over = stage == STAGES[-1] and (work / f"{number}-{stage}" / "done").is_dir()
            return ("measuring" if over else stage), progress
    return "start", None


def _times(expected: dict[str, float], stage: str, progress: Progress | None) -> tuple[float, float]:
    """Return the seconds that are over and left: as expected, but at the speed that is seen."""
    parts = list(expected)
    place = parts.index(stage)
    pace, done = 1.0, 0.0
    if progress is not None and stage in STAGES:
        done = progress.step / progress.steps
        if progress.seconds_per_step is not None:
            pace = progress.seconds_per_step * progress.steps / expected[stage]
    over = sum(expected[part] for part in parts[:place]) + done * expected[stage]
    return pace * over, pace * (sum(expected.values()) - over)


def _problem(job: Job) -> str:
    """Return in a sentence why a job has failed."""
    ended = _read(job.folder / "ended.json")
    log = (job.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
    last = _last_line(log)
    if "Traceback (most recent call last)" in log:
        return f"The training met an error that nobody foresaw ({last[:200]}): resume it, or start anew."
    if ended is not None and ended["status"] > 0 and last:
        return last
    return (
        "The training was ended from outside, for example by a restart or for lack of memory: resume it to go on from "
        "its last saved state."
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _result(job: Job) -> bool:
    path = job.folder / "result.json"
    return path.is_file() and path.stat().st_size > 0


def _process(identity: dict[str, Any] | None) -> psutil.Process | None:
    """Return the process that was started, if it still runs; its number may have passed to another one since."""
    if identity is None:
        return None
    try:
        process = psutil.Process(identity["pid"])
        same = abs(process.create_time() - identity["created"]) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
