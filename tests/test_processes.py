"""One training in two processes, by torchrun and by accelerate: it ends where a training in one process ends."""

import csv
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bba.__main__ import main
from bba.data.synthetic import synthetic_split
from bba.errors import TrainingError
from bba.predict import BudgetedClassifier
from bba.training import processes
from bba.training.runs import work_folder

FLAGS = [
    *("--model.hidden_size", "32", "--model.layers", "2", "--model.heads", "4", "--model.ffn_size", "32"),
    *("--model.max_length", "32", "--model.dropout", "0", "--model.token_dropout", "0"),
    *("--training.dense.epochs", "6", "--training.soft.epochs", "2", "--training.hard.epochs", "2"),
    *("--training.dense.learning_rate", "3e-3", "--training.soft.learning_rate", "1e-3"),
    *("--training.hard.learning_rate", "1e-3", "--training.batch_size", "20", "--training.save_every", "5"),
    *("--training.min_steps", "1"),
]
"""No dropout: then two halves of a step are the whole step, up to rounding."""
PROGRAM = """
import os, signal, sys
from bba.__main__ import main
from bba.training.trainer import BudgetTrainer
whole = BudgetTrainer.training_step
def step_or_die(self, *arguments, **options):
    if os.environ["RANK"] == "1" and (self.stage, self.state.global_step) == ("soft", 12):
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, *arguments, **options)
BudgetTrainer.training_step = step_or_die
sys.exit(main(sys.argv[1:]))
"""


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCELERATE = ("accelerate.commands.launch", "--cpu", "--num_processes", "2")


def in_two_processes(*command):
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=environment)


def test_two_processes_stopped_and_resumed_end_where_one_ends(tmp_path, capsys):
    examples = synthetic_split(250, "processes")
    with (tmp_path / "examples.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(examples.texts, examples.labels, strict=True)])
    train = ["train", "--task", str(tmp_path / "examples.csv"), *FLAGS, "--json"]
    assert main([*train, "--out", str(tmp_path / "one")]) == 0
    expected = json.loads(capsys.readouterr().out)

    out = tmp_path / "two"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    stopped = in_two_processes(*TORCHRUN, str(program), *train, "--out", str(out))
    assert stopped.returncode != 0
    assert not out.exists()
    assert (work_folder(out) / "1-dense" / "done").is_dir()
    resumed = in_two_processes(*ACCELERATE, "-m", "bba", *train, "--out", str(out), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.count("soft stage: 20 steps, going on from checkpoint-10") == 1
    assert not work_folder(out).exists()

    printed = json.loads(resumed.stdout)  # One process speaks.
    assert printed["n"] == expected["n"]
    one, two = (BudgetedClassifier.from_pretrained(tmp_path / name) for name in ("one", "two"))
    for budget in (1.0, 0.5, 0.25):
        for here, there in zip(one.predict(examples.texts, budget), two.predict(examples.texts, budget), strict=True):
            assert there.probabilities == pytest.approx(here.probabilities, abs=0.02)


def test_a_step_is_shared_equally_or_not_at_all(monkeypatch):
    assert processes.share_of(20) == 20
    monkeypatch.setattr(processes, "join", lambda: SimpleNamespace(num_processes=3))
    assert processes.share_of(21) == 7
    with pytest.raises(TrainingError, match=r"batch_size 20 cannot be shared by 3 processes: give a multiple of 3\.$"):
        processes.share_of(20)
