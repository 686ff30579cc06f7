import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bba import jobs
from bba.checkpoints import checkpoint_folders
from bba.data.tables import read_table
from bba.errors import TrainingError
from bba.jobs import Job, Request
from bba.settings import ModelSettings, StageSettings, TrainSettings
from bba.training.progress import PROGRESS
from bba.training.runs import work_folder
from bba.training.speed import Speed, spend

SECONDS = {"start": 2.0, "dense": 10.0, "soft": 10.0, "hard": 10.0, "measuring": 8.0}
SPLITS = {"train": 400, "validation": 50, "test": 50}
SPEED = Speed(start=10, dense=0.1, soft=0.2, hard=0.1, answer=0.001, answers=0.02, latency=0.5)
EXAMPLES = pd.DataFrame(
    [(f'good "{i}",\nor so', "pos") for i in range(20)] + [(f"bad\r{i}", "1;neg") for i in range(20)],
    columns=["text", "label"],
)
SLEEP = "import time; time.sleep(120)"


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    """Keep clear of jobs that other programs on this machine run."""
    monkeypatch.setattr(jobs, "PLACE", tmp_path / "place" / "training")
    (tmp_path / "place").mkdir()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "checkpoints"
    root.mkdir()
    yield root
    for job in jobs.jobs_in(root):
        jobs.stop(job)


@pytest.fixture
def runs(monkeypatch):
    """Return a function that lets jobs run a few lines of Python instead of a training."""

    def set_program(program):
        monkeypatch.setattr(jobs, "_command", lambda job: [sys.executable, "-c", program, str(job.out)])

    return set_program


def asked(name="mine", **training):
    settings = TrainSettings(StageSettings(1, 1e-3), StageSettings(1, 1e-3), StageSettings(1, 1e-3), **training)
    model = ModelSettings(hidden_size=16, layers=1, heads=2, ffn_size=16, max_length=16)
    return Request(name, "my reviews.csv", "word", model, settings, SECONDS, "somebody")


def ended(job, seconds=120):
    deadline = time.monotonic() + seconds
    while (now := jobs.state(job)).status == "running":
        assert time.monotonic() < deadline, (job.folder / "log.txt").read_text()
        time.sleep(0.1)
    return now


def progress(job, stage, step, steps=100, seconds_per_step=None):
    folder = work_folder(job.out) / stage
    folder.mkdir(parents=True, exist_ok=True)
    values = {"step": step, "steps": steps, "seconds_per_step": seconds_per_step, "loss": 0.5}
    (folder / PROGRESS).write_text(json.dumps(values))


def test_a_small_training_runs_to_a_checkpoint(root):
    job = jobs.start(root, asked(min_steps=2, batch_size=8, save_every=2), EXAMPLES)
    assert jobs.running() == job
    assert job.owner == "somebody"
    assert ended(job, 300).status == "finished", (job.folder / "log.txt").read_text()
    assert checkpoint_folders(root) == [root / "mine"]
    report = json.loads((root / "mine" / "report.json").read_text())
    assert report["labels"] == ["1;neg", "pos"]
    assert report["task"] == "my-reviews"
    assert sum(report["counts"].values()) == 40
    assert not (job.folder / "data").exists()
    assert not work_folder(job.out).exists()


def test_examples_come_back_as_they_were(root, runs):
    runs(SLEEP)
    job = jobs.start(root, asked(), EXAMPLES)
    (path,) = (job.folder / "data").iterdir()
    pd.testing.assert_frame_equal(read_table(path).frame.reset_index(drop=True), EXAMPLES, check_dtype=False)


def test_one_at_a_time_stop_resume_and_discard(root, runs):
    runs(SLEEP)
    job = jobs.start(root, asked("first"), EXAMPLES)
    with pytest.raises(TrainingError, match="A training is running on this machine, which does one at a time"):
        jobs.start(root, asked("second"), EXAMPLES)
    assert not Job(root, "second").folder.exists()
    progress(job, "1-dense", 50)
    jobs.stop(job)
    assert jobs.state(job).status == "stopped"
    assert jobs.running() is None
    jobs.resume(job)
    assert jobs.state(job).status == "running"
    jobs.discard(job)
    assert list(root.glob(".jobs/*")) == []
    assert not work_folder(job.out).exists()


def test_how_far_a_job_is(root, runs):
    runs(SLEEP)
    job = jobs.start(root, asked(), EXAMPLES)
    assert jobs.state(job).stage == "start"
    progress(job, "1-dense", 100)
    progress(job, "2-soft", 50)
    now = jobs.state(job)
    assert (now.stage, now.progress.step, now.progress.loss) == ("soft", 50, 0.5)
    assert (now.share, now.seconds_left) == (pytest.approx(17 / 40), pytest.approx(23))
    progress(job, "2-soft", 50, seconds_per_step=0.2)
    assert jobs.state(job).seconds_left == pytest.approx(46)
    progress(job, "3-hard", 100)
    (work_folder(job.out) / "3-hard" / "done").mkdir()
    assert jobs.state(job).stage == "measuring"


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("import sys; sys.exit('The loss is not a number: start anew.')", r"^The loss is not a number: start anew\.$"),
        ("import os; os.kill(os.getpid(), 9)", "ended from outside"),
        ("1 / 0", r"nobody foresaw \(ZeroDivisionError"),
    ],
)
def test_a_failed_job_says_why(root, runs, program, sentence):
    runs(program)
    job = jobs.start(root, asked(), EXAMPLES)
    ended(job)
    deadline = time.monotonic() + 30
    while not (job.folder / "ended.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    now = jobs.state(job)
    assert now.status == "failed"
    assert pd.Series([now.problem]).str.contains(sentence).all()


def test_another_process_with_the_same_number_is_not_the_job(root, runs):
    runs(SLEEP)
    job = jobs.start(root, asked(), EXAMPLES)
    jobs.stop(job)
    stored = json.loads((job.folder / "process.json").read_text())
    (job.folder / "process.json").write_text(json.dumps({**stored, "pid": os.getpid()}))
    assert jobs.state(job).status == "stopped"


@pytest.mark.parametrize("name", ["", "../up", "a b", "-a", ".hidden", "ü", "a" * 41, "a.training", "a/b"])
def test_a_name_that_is_none_is_refused(root, name):
    with pytest.raises(TrainingError, match=r"letters .* digits and dashes"):
        jobs.start(root, asked(name), EXAMPLES)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("taken", ["mine", "MINE", "mine.training"])
def test_nothing_is_overwritten(root, taken):
    (root / taken).mkdir()
    with pytest.raises(TrainingError, match="nothing is overwritten"):
        jobs.check_name(root, "mine")


def test_minutes_are_spent_on_steps():
    usual = TrainSettings()
    enough = spend(60, SPEED, SPLITS, usual)
    assert enough.usual
    assert enough.steps == {"dense": 300, "soft": 300, "hard": 300}
    short = spend(2, SPEED, SPLITS, usual)
    assert not short.usual
    assert 90 < short.total <= 121
    assert 20 < short.steps["dense"] < 300
    least = spend(0.1, SPEED, SPLITS, usual)
    assert set(least.steps.values()) == {20}


def test_a_short_training_is_followed_by_a_short_measurement():
    few, usual = 7, 15
    timed = [spend(minutes, replace(SPEED, answers=0), SPLITS, TrainSettings()) for minutes in (3, 60)]
    assert [plan.seconds["measuring"] for plan in timed] == [0.5 * (few + 1), 0.5 * (usual + 1)]


def test_of_a_large_file_only_so_many_rows_are_used_as_can_be_measured():
    splits = {"train": 800_000, "validation": 100_000, "test": 100_000}
    plan = spend(10, SPEED, splits, TrainSettings())
    assert 2_000 <= plan.rows < 100_000
    assert plan.total <= 610


def test_the_file_of_examples_is_named_like_the_owners():
    assert jobs._safe("../Meine Daten (2).parquet") == "Meine-Daten-2.csv"
    assert jobs._safe("…") == "examples.csv"
    assert Path(jobs._safe("a/b.csv")).name == "b.csv"
