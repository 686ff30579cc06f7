"""Named tasks and people's own files, as texts with labels in three splits."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets

from bba.data.synthetic import TASK as SYNTHETIC
from bba.data.synthetic import synthetic_data
from bba.data.tables import Table, name_rows, name_values, read_table
from bba.data.texts import Split, TextData, deal
from bba.errors import DataError

DATA_DIR_VARIABLE = "BBA_DATA_DIR"
_OWN_SHARES = (0.1, 0.1)  # Of a person's own file, for validation and for test.


@dataclass(frozen=True)
class Task:
    """A public data set: where it is, and what its classes are called."""

    hub_id: str
    hub_columns: tuple[str, ...]
    """Columns that, joined by a space, are the text."""
    label_names: tuple[str, ...]
    licence: str


TASKS = {
    "agnews": Task(
        hub_id="fancyzhx/ag_news",
        hub_columns=("text",),
        label_names=("World", "Sports", "Business", "Sci/Tech"),
        licence="AG News carries no licence; its owners provide it for research and other non-commercial activity.",
    ),
    "dbpedia14": Task(
        hub_id="fancyzhx/dbpedia_14",
        hub_columns=("title", "content"),
        label_names=(
            *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation"),
            *("Building", "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
        ),
        licence="DBpedia is licensed under CC BY-SA 3.0 and the GNU Free Documentation License.",
    ),
}
"""The named tasks."""


def load_task(
    task: str,
    data_dir: Path | None = None,
    *,
    seed: int = 0,
    validation_share: float = 0.05,
    text_column: str | None = None,
    label_column: str | None = None,
) -> TextData:
    """Return a named task, or a file of examples, in three splits that depend on `seed` alone.

    A named task comes from a folder (`data_dir`, else the one that BBA_DATA_DIR names), else from the hub. Its
    validation texts are taken out of the training texts, class by class; its test texts are left as they are.
    A file is split 80 / 10 / 10, class by class.

    Args:
        task: "synthetic", a name in `TASKS`, or the path of a CSV, TSV, JSONL or Parquet file.
        data_dir: folder that holds `<task>/train.csv` and `<task>/test.csv`, or is itself `<task>`.
        seed: seed of the splits.
        validation_share: share of a named task's training texts, in (0, 1).
        text_column: column of a file's texts, where its name does not tell.
        label_column: the same for its labels.

    Raises:
        DataError: there is no such task, its data is not to be had, or it cannot be used for training.
    """
    if task == SYNTHETIC:
        return synthetic_data(seed)
    if task not in TASKS:
        return _load_file(_own_path(task), seed, text_column, label_column)
    (train, test), source, problems = _read_task(task, ("train", "test"), data_dir)
    validation, rest = deal(train.labels, (validation_share,), seed)
    return TextData(
        task=task,
        label_names=TASKS[task].label_names,
        train=train.take(rest),
        validation=train.take(validation),
        test=test,
        source=source,
        licence=TASKS[task].licence,
        problems=problems,
    )


def load_split(task: str, split: str, data_dir: Path | None = None, *, seed: int = 0) -> tuple[Split, tuple[str, ...]]:
    """Return one split of `load_task` with the label names; the test split of a named task needs only `test.csv`.

    Args:
        task: as for `load_task`.
        split: train, validation or test.
        data_dir: as for `load_task`.
        seed: the seed that the data was split with for training.

    Raises:
        DataError: as for `load_task`, or there is no such split.
    """
    if split not in ("train", "validation", "test"):
        raise DataError(f"There is no split {split!r}: choose train, validation or test.")
    if split == "test" and task in TASKS:
        return _read_task(task, ("test",), data_dir)[0][0], TASKS[task].label_names
    data = load_task(task, data_dir, seed=seed)
    return {"train": data.train, "validation": data.validation, "test": data.test}[split], data.label_names


def load_labelled_file(
    path: Path, label_names: Sequence[str], text_column: str | None = None, label_column: str | None = None
) -> tuple[Split, tuple[str, ...]]:
    """Return a file's examples, labels as positions in `label_names`, and a sentence for each kind of row left out.

    The file's labels are the names themselves or, where not all are names, positions from 0.

    Raises:
        DataError: the file cannot be read, or has labels that are not among `label_names`.
    """
    table = read_table(path, text_column, label_column)
    return _to_split(path, table, label_names), table.problems


# Named tasks


def _read_task(task: str, splits: tuple[str, ...], data_dir: Path | None) -> tuple[list[Split], str, tuple[str, ...]]:
    """Return the splits as they are published, where they came from, and the problems met."""
    asked = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    folder = _task_folder(Path(asked), task, splits) if asked else None
    if folder is None:
        return _download(task, splits, asked), f"{TASKS[task].hub_id} on the Hugging Face Hub", ()
    _check_label_names(folder, task)
    read = [load_labelled_file(folder / f"{split}.csv", TASKS[task].label_names) for split in splits]
    return [split for split, _ in read], f"local files of {task}", tuple(p for _, problems in read for p in problems)


def _task_folder(data_dir: Path, task: str, splits: tuple[str, ...]) -> Path | None:
    """Return the folder that holds the files of these splits: the one named after the task, or `data_dir` itself."""
    folders = (data_dir / task, data_dir)
    return next((f for f in folders if all((f / f"{split}.csv").is_file() for split in splits)), None)


def _check_label_names(folder: Path, task: str) -> None:
    """See that the folder is not another task's."""
    path = folder / "labels.txt"
    expected = TASKS[task].label_names
    if path.is_file() and path.read_text(encoding="utf-8-sig", errors="replace").split() != list(expected):
        raise DataError(
            f"{path} does not list the labels of {task} ({', '.join(expected)}), one a line and in this order: "
            "give the folder that holds this task."
        )


def _download(task: str, splits: tuple[str, ...], asked: Path | str | None) -> list[Split]:
    try:
        parts = datasets.load_dataset(TASKS[task].hub_id, split=list(splits))
    except (OSError, datasets.exceptions.DatasetsError) as error:
        files = " and ".join(f"{task}/{split}.csv" for split in splits)
        where = f"{files} not found in {asked}" if asked else f"no folder given that holds {files}"
        raise DataError(
            f"The data of {task} is not to be had: {where}, and {TASKS[task].hub_id} could not be downloaded "
            f"({type(error).__name__}); name the folder with --data or {DATA_DIR_VARIABLE}, or connect to the network."
        ) from error
    return [_from_hub(part, TASKS[task].hub_columns) for part in parts]


def _from_hub(part: datasets.Dataset, columns: tuple[str, ...]) -> Split:
    cells = zip(*(part[column][:] for column in columns), strict=True)
    return Split([" ".join(cell.strip() for cell in row).replace("\0", "") for row in cells], list(part["label"]))


# Files


def _own_path(task: str) -> Path:
    """Return the path of a file of examples; a bare word that is no file is a misspelt task."""
    path = Path(task)
    if not path.exists() and not path.suffix and path.name == task:
        raise DataError(
            f"There is no task {task!r}: give synthetic, {', '.join(TASKS)}, or the path of a CSV, TSV, JSONL or "
            "Parquet file."
        )
    return path


def _load_file(path: Path, seed: int, text_column: str | None, label_column: str | None) -> TextData:
    return split_table(path, read_table(path, text_column, label_column), seed)


def split_table(path: Path, table: Table, seed: int) -> TextData:
    """Return a file's examples in three splits, 80 / 10 / 10, class by class.

    Raises:
        DataError: they are too few to train and test on, or of one class.
    """
    names = _class_names(table)
    small = _check_classes(path, table)
    whole = _to_split(path, table, names)
    validation, test, train = deal(whole.labels, _OWN_SHARES, seed)
    return TextData(
        task=path.stem if path.stem not in (SYNTHETIC, *TASKS) else path.name,  # "agnews.csv" need not be AG News.
        label_names=names,
        train=whole.take(train),
        validation=whole.take(validation),
        test=whole.take(test),
        source=f"the file {path.name}",
        licence="The licence is that of the file, which its owner knows.",
        problems=table.problems + small,
    )


def _class_names(table: Table) -> tuple[str, ...]:
    """Return the labels that occur: as numbers if all of them are numbers, else in alphabetical order."""
    labels = set(table.frame["label"])
    numbers = all(re.fullmatch(r"[+-]?\d+(\.\d+)?", label) for label in labels)
    return tuple(sorted(labels, key=lambda label: (float(label) if numbers else 0.0, label)))


def _check_classes(path: Path, table: Table) -> tuple[str, ...]:
    """See that there is something to learn and to measure; return a sentence on the classes too small to split."""
    counts = Counter(table.frame["label"])
    if len(counts) == 1:
        raise DataError(
            f"Every row of {path} has the same label {next(iter(counts))!r}: a classifier needs at least two classes; "
            "add rows of another, or name the right column with --label-column."
        )
    single = [label for label, count in counts.items() if count == 1]
    if single:
        rows = name_rows(list(table.frame.index[table.frame["label"].isin(single)]))
        raise DataError(
            f"{path} has only one row for {name_values(single)} ({rows}): a class needs at least two; correct the "
            "label, add rows, or name the right column with --label-column."
        )
    small = [label for label, count in counts.items() if count <= len(_OWN_SHARES)]
    if len(small) == len(counts):
        raise DataError(
            f"{path} has too few rows to train and test on: give at least 3 for a class, better 50 or more."
        )
    return (f"Too few rows for validation and test, so used for training only: {name_values(small)}.",) if small else ()


def _to_split(path: Path, table: Table, label_names: Sequence[str]) -> Split:
    """Return the table's examples with labels as positions: the names' own, else the numbers from 0 in the file."""
    labels = table.frame["label"]
    by_name = {name: position for position, name in enumerate(label_names)}
    by_number = {str(position): position for position in range(len(label_names))}
    positions = next((p for p in (by_name, by_number) if labels.isin(list(p)).all()), None)
    if positions is None:
        known = by_number if labels.isin(list(by_number)).any() and not labels.isin(list(by_name)).any() else by_name
        raise _unknown_labels(path, table, known, label_names)
    return Split(table.frame["text"].tolist(), [positions[label] for label in labels])


def _unknown_labels(path: Path, table: Table, known: dict[str, int], label_names: Sequence[str]) -> DataError:
    unknown = table.frame["label"][~table.frame["label"].isin(list(known))]
    return DataError(
        f"{path} has labels that are not among the known classes: {name_values(sorted(set(unknown)))} "
        f"({name_rows(list(unknown.index))}); write {name_values(label_names)} or 0 to {len(label_names) - 1}, "
        "or name the right column with --label-column."
    )
