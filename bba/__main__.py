"""The command line: `python -m bba COMMAND`. Flags, help and configuration files come from the commands' signatures."""

import argparse
import inspect
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, Namespace

from bba.commands.bench import bench
from bba.commands.budgetformer import budgetformer
from bba.commands.calibrate import calibrate
from bba.commands.compare import compare
from bba.commands.distill import distill
from bba.commands.estimate import estimate
from bba.commands.evaluate import evaluate
from bba.commands.export import export
from bba.commands.list import list_checkpoints
from bba.commands.predict import predict
from bba.commands.prune import prune
from bba.commands.train import train
from bba.errors import BBAError
from bba.output import Result
from bba.settings import WORD, usual_settings

COMMANDS: dict[str, Callable[..., Result]] = {
    "train": train,
    "estimate": estimate,
    "budgetformer": budgetformer,
    "distill": distill,
    "calibrate": calibrate,
    "evaluate": evaluate,
    "predict": predict,
    "prune": prune,
    "bench": bench,
    "export": export,
    "compare": compare,
    "list": list_checkpoints,
}


class OneLineParser(ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End the process with status 2."""
        sys.stderr.write(f"{_in_one_line(message)}; add --help to see what can be given.\n")
        sys.exit(2)


def _in_one_line(message: str) -> str:
    """Return what matters of jsonargparse's report on an argument, which nests a paragraph per type that was tried."""
    names = re.findall(r'Parser key "([\w.]+)"', message)
    value = re.search(r"(?:Got value: |val='|Given value: )([^\n']*)", message)
    expected = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    kinds = [expected[kind] for kind in re.findall(r"Expected a <class '(\w+)'>", message) if kind in expected]
    if names and value and kinds:
        return f"{'.'.join(names)} is {value[1]!r}: give {kinds[0]}"
    return re.sub(rf"\b(?:{'|'.join(COMMANDS)})\.(?=\w)", "", " ".join(message.split()))


def _train_defaults(given: Sequence[str]) -> dict[str, Any]:
    """Return the settings that suit the task and the backbone that are named on the line or in its file."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--task", "--backbone", "--config"):
        peek.add_argument(flag)
    named, _ = peek.parse_known_args(given)
    stored = _mapping(named.config) if named.config else {}
    task = named.task or str(stored.get("task", ""))
    model, training = usual_settings(task, named.backbone or str(stored.get("backbone", WORD)))
    return {"model": asdict(model), "training": asdict(training)}


def _mapping(path: str) -> dict[str, Any]:
    """Return what a YAML file maps; nothing if it cannot be read, as the parser itself will say why."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def make_parser(given: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of all commands, with the defaults that suit what is given."""
    parser = OneLineParser(prog="bba", description="One Transformer text classifier whose cost is a dial.")
    commands = parser.add_subcommands(metavar="COMMAND")
    for name, function in COMMANDS.items():
        summary = (function.__doc__ or "").partition("\n")[0]
        command = OneLineParser(description=summary)
        command.add_argument("--config", action="config", help="a YAML file with any of these settings")
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parameters = inspect.signature(function).parameters
        if "checkpoint" in parameters:
            command.add_argument("checkpoint", type=Path, help="folder of the checkpoint")
        if "resume" in parameters:
            command.add_argument("--resume", action="store_true", help="continue a run that was stopped")
        if "text" in parameters:  # Of a bare string; as one that may be None, "#1 hit" and "null" are read as nothing.
            command.add_argument("--text", type=str, help="a text to classify")
        command.add_function_arguments(function, as_group=False, skip={"checkpoint", "resume", "text"})
        if name in ("train", "budgetformer", "compare"):
            command.set_defaults(_train_defaults(given))
        commands.add_subcommand(name, command, help=summary)
    return parser


def _with_underscores(argument: str) -> str:
    """Let `--text-column` stand for `--text_column`: people type the one, Python's names are the other."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value


def _parse(given: Sequence[str]) -> Namespace:
    """Return the settings as objects; an error of theirs comes out of jsonargparse wrapped in others."""
    parser = make_parser(given)
    try:
        return parser.instantiate(parser.parse_args(given))
    except ValueError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, BBAError):
            cause = cause.__cause__ or cause.__context__
        raise cause or error from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit status: 0, or 1 for a mistake that is the user's to mend."""
    given = [_with_underscores(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "datasets", "huggingface_hub", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        parsed = _parse(given)
        name = parsed.pop("subcommand")
        options = vars(parsed.pop(name))
        options.pop("config")
        as_json = options.pop("json")
        result = COMMANDS[name](**options)
    except BBAError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}: {error.filename or 'no file named'}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Stopped. A training run continues with --resume.\n")
        return 130
    sys.stdout.write((result.to_json() if as_json else result.text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
