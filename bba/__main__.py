"""The command line: `python -m bba COMMAND`. Flags, help and configuration files come from the recipes' signatures."""

import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from bba import recipes
from bba.errors import BBAError

COMMANDS: dict[str, Callable[..., recipes.Result]] = {
    "train": recipes.train,
    "evaluate": recipes.evaluate,
    "predict": recipes.predict,
    "prune": recipes.prune,
    "bench": recipes.bench,
    "list": recipes.list_checkpoints,
}


def make_parser() -> ArgumentParser:
    """Return the parser of all commands."""
    parser = ArgumentParser(prog="bba", description="One Transformer text classifier whose cost is a dial.")
    commands = parser.add_subcommands(metavar="COMMAND")
    for name, function in COMMANDS.items():
        summary = (function.__doc__ or "").partition("\n")[0]
        command = ArgumentParser(description=summary)
        command.add_argument("--config", action="config", help="a YAML file with any of these settings")
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parameters = inspect.signature(function).parameters
        if "checkpoint" in parameters:
            command.add_argument("checkpoint", type=Path, help="folder of the checkpoint")
        if "resume" in parameters:
            command.add_argument("--resume", action="store_true", help="continue a run that was stopped")
        command.add_function_arguments(function, as_group=False, skip={"checkpoint", "resume"})
        commands.add_subcommand(name, command, help=summary)
    return parser


def _with_underscores(argument: str) -> str:
    """Let `--text-column` stand for `--text_column`: people type the one, Python's names are the other."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit status: 0, or 1 for a mistake that is the user's to mend."""
    given = [_with_underscores(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "datasets", "huggingface_hub", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    parser = make_parser()
    parsed = parser.instantiate(parser.parse_args(given))
    name = parsed.pop("subcommand")
    options = vars(parsed.pop(name))
    options.pop("config")
    as_json = options.pop("json")
    try:
        result = COMMANDS[name](**options)
    except BBAError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Stopped. A training run continues with --resume.\n")
        return 130
    sys.stdout.write((recipes.as_json(result) if as_json else result.text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
