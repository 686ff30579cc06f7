"""The README and the model cards say what the code does and the reports hold."""

import re
import shlex
from pathlib import Path

import pytest

from bba.__main__ import _with_underscores, make_parser
from bba.checkpoints import checkpoint_folders, read_report
from bba.measure.card import model_card
from bba.model import Setting

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python -m bba ([^`#\n]+)", README)))
ROWS = re.findall(r"^\| `(\S+)` \| (\S+) \| (\d+) of (\d+) \| (\S+) % \| (\S+)x \| (\S+)x \|$", README, re.MULTILINE)
SHIPPED = checkpoint_folders(ROOT / "checkpoints")


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command == "list" or (" --" in command and "help" not in command)]
)
def test_commands_are_accepted(command):
    arguments = [_with_underscores(argument) for argument in shlex.split(command)]
    assert make_parser().parse_args(arguments).subcommand == arguments[0]


def test_figures_are_those_of_the_reports():
    assert {name for name, *_ in ROWS} == {folder.name for folder in SHIPPED}
    for name, budget, heads, of, accuracy, speedup, predicted in ROWS:
        report = read_report(ROOT / "checkpoints" / name)
        row = report.row(*Setting.parse(budget))
        timed = next(one for one in report.latency.rows if (one.heads, one.blocks) == (row.heads, row.blocks))
        assert (int(heads), int(of)) == (row.heads, max(row.heads for row in report.test))
        assert accuracy == f"{100 * row.accuracy:.2f}"
        assert (speedup, predicted) == (f"{timed.speedup:.2f}", f"{timed.predicted_speedup:.2f}")


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_cards_are_those_of_the_reports(folder):
    assert (folder / "README.md").read_text(encoding="utf-8") == model_card(folder.name, read_report(folder))


def test_pictures_are_there():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).is_file()
