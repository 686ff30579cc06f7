import functools
import json
import logging
import shutil
import subprocess
import sys
from dataclasses import asdict

import pandas as pd
import pytest

from bba.__main__ import COMMANDS, main
from bba.checkpoints import Checkpoint
from bba.commands.train import train
from bba.data import sources
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.data.texts import TextData
from bba.output import Result
from bba.predict import BudgetedClassifier
from bba.pruning.cost import encoder_share
from bba.pruning.surgery import prune_to

EVALUATE_ROW = {"budget", "ffn_budget", "cost", "accuracy", "macro_f1"}
BENCH_ROW = {"budget", "ffn_budget", "median_ms", "iqr_ms", "speedup", "predicted_speedup"}
PREDICT_ROW = {"text", "label", "probability", "budget", "ffn_budget"}


@pytest.fixture(autouse=True)
def small_synthetic_data(monkeypatch):
    splits = {name: synthetic_split(40, f"cli/{name}") for name in ("train", "validation", "test")}
    data = TextData("synthetic", PEOPLE, **splits, source="made here", licence="Free.")
    monkeypatch.setattr(sources, "synthetic_data", lambda seed: data)


@pytest.fixture
def run(capsys):
    """Return a function that runs a command in this process: status, standard output, standard error."""

    def run_command(*arguments):
        root = logging.getLogger()
        handlers, root.handlers = root.handlers, []  # So that the command sets up its own, on this test's streams.
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        finally:
            root.handlers = handlers
        out, err = capsys.readouterr()
        return status, out, err

    return run_command


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="in.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def json_of(result):
    """Return what a command printed, having seen that it is one JSON object on a line and nothing else."""
    status, out, _ = result
    assert status == 0
    assert out.count("\n") == 1
    return json.loads(out)


def mistake_of(result, status=1):
    """Return what a command said of a mistake, having seen that it is one line."""
    assert result[0] == status
    assert result[1] == ""
    assert result[2].count("\n") == 1, result[2]
    assert "\r" not in result[2]
    assert "Traceback" not in result[2]
    return result[2].strip()


# Help


def test_help_of_every_command_does_not_wait_for_torch():
    program = """
import sys
from bba.__main__ import COMMANDS, main
for command in ([], *([name] for name in COMMANDS)):
    try:
        main([*command, "--help"])
    except SystemExit as end:
        assert end.code == 0, command
heavy = {"torch", "transformers", "pandas", "datasets", "sklearn", "streamlit"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for name in COMMANDS:
        assert name in done.stdout
    for flag in ("--task", "--resume", "--training", "--budgets", "--output", "--threads", "--config", "--json"):
        assert flag in done.stdout


def test_the_module_runs_as_a_program(checkpoint_folder):
    command = [sys.executable, "-m", "bba", "predict", checkpoint_folder, "--text", "hat? tom:hat", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert set(json_of((done.returncode, done.stdout, done.stderr))["rows"][0]) >= PREDICT_ROW
    assert done.stderr == ""


# What works


def test_predict_prints_a_label_and_what_was_paid(run, checkpoint_folder, classifier):
    status, out, err = run("predict", checkpoint_folder, "--text", "hat? tom:hat", "--budget", "0.5")
    expected = classifier.predict(["hat? tom:hat"], 0.5)[0]
    assert status == 0
    assert f"-> {expected.label}, with 6 heads ({expected.encoder_cost:.3f} of the encoder's cost)" in out
    assert err == ""


@pytest.fixture(scope="module")
def dialled_folder(two_dials, tokenizer, tmp_path_factory):
    """Return a checkpoint with both dials and no report."""
    folder = tmp_path_factory.mktemp("two") / "dials"
    BudgetedClassifier(Checkpoint(two_dials, tokenizer, None), "dials").save_pretrained(folder)
    return folder


TEXT = ("--text", "hat? tom:hat")


@pytest.mark.parametrize("asked", [("--budget", "0.5:0.34"), ("--budget", "0.5", "--ffn-budget", "0.34")], ids=str)
def test_predict_takes_both_budgets(run, dialled_folder, two_dials, asked):
    (row,) = json_of(run("predict", dialled_folder, *TEXT, *asked, "--json"))["rows"]
    expected = BudgetedClassifier.from_pretrained(dialled_folder).predict([TEXT[1]], 0.5, 0.34)[0]
    assert (row["label"], row["budget"], row["ffn_budget"]) == (expected.label, 0.5, 0.34)
    assert row["probability"] == pytest.approx(expected.probability)
    assert row["encoder_cost"] == encoder_share(prune_to(two_dials, 0.5, 0.34).config)


def test_evaluate_and_bench_take_pairs(run, dialled_folder, write):
    lines = [f'"{text}",{PEOPLE[label]}' for text, label in [("hat? tom:hat", 1), ("hat? mia:hat", 0)]]
    data = write("text,label\n" + "\n".join(lines))
    pairs = [(1, 1), (0.5, 1), (0.5, 0.34)]
    rows = json_of(run("evaluate", dialled_folder, "--data", data, "--budgets", "1,0.5,0.5:0.34", "--json"))["rows"]
    assert [(row["budget"], row["ffn_budget"]) for row in rows] == pairs
    command = ("bench", dialled_folder, "--budgets", "0.5,0.5:0.34", "--rounds", "2", "--length", "8", "--json")
    rows = json_of(run(*command))["rows"]
    assert [(row["budget"], row["ffn_budget"]) for row in rows] == [*pairs, (0, 1)]


@pytest.mark.parametrize("asked", [("--budget", "0.5:0.34"), ("--budget", "0.5", "--ffn-budget", "0.34")], ids=str)
def test_a_pruned_pair_is_a_checkpoint_like_any_other(run, dialled_folder, two_dials, tmp_path, asked):
    values = json_of(run("prune", dialled_folder, *asked, "--out", tmp_path / "small", "--json"))
    assert (values["heads"], values["blocks"]) == (6, 3)
    small = BudgetedClassifier.from_pretrained(tmp_path / "small")
    assert small.checkpoint.model.state_dict().keys() == two_dials.state_dict().keys()
    big = BudgetedClassifier.from_pretrained(dialled_folder).predict([TEXT[1]], 0.5, 0.34)[0]
    assert small.predict([TEXT[1]])[0].probabilities == pytest.approx(big.probabilities)
    (row,) = json_of(run("predict", tmp_path / "small", *TEXT, "--budget", "0.25", "--json"))["rows"]
    assert (row["budget"], row["ffn_budget"]) == (0.25, pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (("--budget", "0.5:0.5:0.5"), "write one number with a decimal point"),
        (("--budget", "0.5:0,5"), "write one number with a decimal point"),
        (("--budget", "0.5:"), "The budget '' is not usable"),
        (("--budget", "0.5:0"), "The budget '0' is not usable"),
        (("--ffn-budget", "0.5:0.5"), "The FFN budget is given twice"),
        (("--budget", "0.5:0.5", "--ffn-budget", "0.5"), "The FFN budget is given twice: write --budget 0.5:0.5, or"),
        (("--budget", "0.5", "--ffn-budget", "nan"), "The budget 'nan' is not usable"),
    ],
    ids=str,
)
def test_pairs_that_cannot_be_are_refused_in_one_sentence(run, dialled_folder, asked, part):
    status, out, err = run("predict", dialled_folder, *TEXT, *asked)
    assert (status, out) == (1, "")
    assert part in err
    assert err.count("\n") == 1


def test_a_checkpoint_without_ffn_dial_says_so(run, checkpoint_folder):
    status, _, err = run("predict", checkpoint_folder, *TEXT, "--budget", "0.5:0.5")
    assert status == 1
    assert "this model was trained for head budgets only" in err


def test_a_file_tells_the_ffn_budget_where_it_is_cut(run, dialled_folder, write, tmp_path):
    source = write("text\nhat? tom:hat\n")
    for budget, columns in (("0.5", ["text", "label", "probability", "budget"]), ("0.5:0.34", None)):
        target = tmp_path / f"out-{len(budget)}.csv"
        run("predict", dialled_folder, "--input", source, "--output", target, "--budget", budget)
        found = pd.read_csv(target)
        assert list(found.columns) == (columns or ["text", "label", "probability", "budget", "ffn_budget"])
    assert found["ffn_budget"].tolist() == [0.34]


@pytest.mark.parametrize(
    ("given", "model", "training"),
    [
        (["--task", "agnews"], {"hidden_size": 160, "dropout": 0.2}, {"ffn": False, "batch_size": 64}),
        (["--task", "synthetic"], {"hidden_size": 64, "dropout": 0.0}, {"ffn": False, "batch_size": 64}),
        (["--task=synthetic", "--model.layers", "2"], {"hidden_size": 64, "layers": 2}, {"batch_size": 64}),
        (["--task", "x", "--backbone", "minilm"], {"dropout": 0.1}, {"ffn": True, "batch_size": 32, "seed": 0}),
        (["--task", "x", "--backbone", "a/b", "--training.seed", "3"], {}, {"batch_size": 32, "seed": 3}),
        (["--task", "x", "--config", "run.yaml"], {"dropout": 0.1}, {"batch_size": 32, "seed": 5}),
    ],
    ids=str,
)
def test_settings_that_are_not_given_suit_task_and_backbone(run, monkeypatch, tmp_path, given, model, training):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("backbone: minilm\ntraining:\n  seed: 5\n")
    seen = {}
    monkeypatch.setitem(COMMANDS, "train", _like_train(seen))
    assert run("train", *given, "--out", "x")[0] == 0
    assert asdict(seen["model"]).items() >= model.items()
    assert asdict(seen["training"]).items() >= training.items()


def _like_train(seen):
    """Return what has the signature of the recipe, and only remembers what it was called with."""

    @functools.wraps(train)
    def remember(**options):
        seen.update(options)
        return Result({}, "")

    return remember


def test_predict_as_json(run, checkpoint_folder, classifier):
    (row,) = json_of(run("predict", checkpoint_folder, "--text", "hat? tom:hat", "--budget", "0.5", "--json"))["rows"]
    expected = classifier.predict(["hat? tom:hat"], 0.5)[0]
    assert set(row) >= PREDICT_ROW
    assert (row["text"], row["label"], row["budget"], row["ffn_budget"]) == ("hat? tom:hat", expected.label, 0.5, 1)
    assert row["probability"] == pytest.approx(expected.probability)


@pytest.mark.parametrize(
    "text", ["123", "true", "[1, 2]", "{a: b}", "- dash", "0.5", "#1 hit", "null", "~", "a: b", "'", "😀"]
)
def test_a_text_is_taken_as_it_is_typed(run, checkpoint_folder, text):
    assert json_of(run("predict", checkpoint_folder, "--text", text, "--json"))["rows"][0]["text"] == text


def test_predict_says_how_much_was_read_and_known(run, checkpoint_folder):
    out = run("predict", checkpoint_folder, "--text", "quux " * 100)[1]
    assert "The text has 102 tokens; the first 32 were read." in out
    assert "of its words are unknown to this model" in out


def test_predict_writes_the_rows_in_their_order(run, checkpoint_folder, classifier, write, tmp_path):
    path = write('id,text,label\n7,"hat? tom:hat",a\n8,,b\n9,"key? leo:key, yes",c\n')
    out = tmp_path / "out.csv"
    result = json_of(run("predict", checkpoint_folder, "--input", path, "--output", out, "--budget", "0.5", "--json"))
    assert result["output"] == str(out)
    written = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert list(written.columns) == ["id", "text", "label", "predicted_label", "probability", "budget"]
    assert written["id"].tolist() == ["7", "8", "9"]
    assert written["label"].tolist() == ["a", "b", "c"]
    predicted = classifier.predict(["hat? tom:hat", "key? leo:key, yes"], 0.5)
    assert written["predicted_label"].tolist() == [predicted[0].label, "", predicted[1].label]
    assert written["budget"].tolist() == ["0.5", "", "0.5"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_prune_writes_a_smaller_checkpoint(run, checkpoint_folder, tmp_path):
    values = json_of(run("prune", checkpoint_folder, "--budget", "0.5", "--out", tmp_path / "small", "--json"))
    assert (values["heads"], values["of"], values["cost"]) == (6, 12, 0.5)
    rows = json_of(run("predict", tmp_path / "small", "--text", "hat?", "--json"))["rows"]
    assert rows[0]["cost"] == 0.5


@pytest.mark.parametrize("budget", ["0.5", "0.01"])
def test_a_pruned_checkpoint_is_listed_evaluated_and_timed_like_any(run, checkpoint_folder, tmp_path, budget):
    assert run("prune", checkpoint_folder, "--budget", budget, "--out", tmp_path / "small")[0] == 0
    (row,) = json_of(run("list", "--root", tmp_path, "--json"))["rows"]
    assert row["pruned_from"] == "tiny"
    assert json_of(run("evaluate", tmp_path / "small", "--json"))["rows"]
    rows = json_of(run("bench", tmp_path / "small", "--budgets", "0.01", "--rounds", 1, "--length", 8, "--json"))[
        "rows"
    ]
    assert len(rows) == 3


def test_evaluate_as_json(run, checkpoint_folder, report):
    values = json_of(run("evaluate", checkpoint_folder, "--budgets", "0.25, 0.5,1", "--json"))
    assert (values["checkpoint"], values["split"], values["n"]) == ("tiny", "test", 40)
    assert [row["budget"] for row in values["rows"]] == [0.25, 0.5, 1]
    assert all(set(row) >= EVALUATE_ROW for row in values["rows"])


def test_evaluate_measures_the_whole_grid_where_no_budget_is_given(run, checkpoint_folder, report):
    rows = json_of(run("evaluate", checkpoint_folder, "--split", "validation", "--json"))["rows"]
    assert [row["budget"] for row in rows] == report.budgets()


def test_evaluate_on_a_file_gives_the_accuracy_counted_by_hand(run, checkpoint_folder, classifier, write):
    split = synthetic_split(30, "file")
    lines = [f'"{text}",{PEOPLE[label]}' for text, label in zip(split.texts, split.labels, strict=True)]
    values = json_of(
        run(
            "evaluate",
            checkpoint_folder,
            "--data",
            write("\n".join(["text,label", *lines])),
            "--budgets",
            0.5,
            "--json",
        )
    )
    predicted = [prediction.label for prediction in classifier.predict(split.texts, 0.5)]
    right = sum(label == PEOPLE[truth] for label, truth in zip(predicted, split.labels, strict=True))
    assert values["n"] == 30
    assert values["rows"][0]["accuracy"] == pytest.approx(right / 30)


def test_evaluate_on_a_part(run, checkpoint_folder):
    assert json_of(run("evaluate", checkpoint_folder, "--limit", 8, "--budgets", "1", "--json"))["n"] == 8


def test_bench_as_json(run, checkpoint_folder):
    values = json_of(
        run("bench", checkpoint_folder, "--budgets", "0.5,1", "--rounds", 2, "--length", 8, "--batch", 3, "--json")
    )
    assert (values["checkpoint"], values["threads"], values["batch"], values["length"]) == ("tiny", 1, 3, 8)
    assert values["cpu"]
    assert [row["budget"] for row in values["rows"]] == [1, 0.5, 0]
    assert all(set(row) >= BENCH_ROW for row in values["rows"])


def test_export_as_json(run, checkpoint_folder, tmp_path):
    out = tmp_path / "half.onnx"
    result = json_of(run("export", checkpoint_folder, "--budget", "0.5", "--int8", "true", "--out", out, "--json"))
    assert (result["path"], result["kind"], result["texts"]) == (str(out), "onnx-int8", 40)
    assert result["bytes"] == out.stat().st_size
    assert result["agreement"] >= 0.95
    assert {file.name for file in tmp_path.iterdir()} == {"half.onnx", "half.tokenizer.json"}


def test_export_where_there_are_no_texts_to_compare_on(run, checkpoint_folder, tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(checkpoint_folder, folder)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (folder / "report.json").write_text(json.dumps({**report, "task": "reviews"}), encoding="utf-8")
    status, out, err = run("export", folder, "--out", tmp_path / "own.onnx")
    assert status == 0
    assert err.startswith("Compared on random tokens alone, as there are no texts.")
    assert out.count("\n") == 1
    assert "logits differ from the model's by up to" in out


@pytest.mark.parametrize("command", ["evaluate", "bench", "list"])
def test_people_get_a_table(run, checkpoint_folder, command):
    arguments = {"bench": (checkpoint_folder, "--rounds", 1, "--length", 8), "evaluate": (checkpoint_folder,)}
    status, out, _ = run(command, *arguments.get(command, ("--root", checkpoint_folder.parent)))
    assert status == 0
    assert len(out.splitlines()) >= 2
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(out)


def test_list_names_what_there_is(run, checkpoint_folder, report):
    (row,) = json_of(run("list", "--root", checkpoint_folder.parent, "--json"))["rows"]
    assert (row["checkpoint"], row["task"], row["heads"]) == ("tiny", "synthetic", 12)
    assert row["accuracy"] == report.row(1.0).accuracy


def test_list_says_which_report_is_damaged_and_shows_the_others(run, checkpoint_folder, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(checkpoint_folder, tmp_path / name)
    (tmp_path / "a" / "report.json").write_text("{")
    status, out, err = run("list", "--root", tmp_path)
    assert status == 0
    assert "b           synthetic" in out
    assert f"{tmp_path / 'a' / 'report.json'} is not JSON" in err


def test_list_of_nothing_says_how_to_get_something(run, tmp_path):
    status, out, _ = run("list", "--root", tmp_path)
    assert status == 0
    assert out == f"No checkpoint in {tmp_path}: train one with `python -m bba train`.\n"


def test_settings_from_a_file_and_dashes_in_flags(run, checkpoint_folder, write):
    path = write("budgets: '0.5'\nlimit: 4\n", "run.yaml")
    values = json_of(run("evaluate", checkpoint_folder, "--config", path, "--json"))
    assert (values["n"], [row["budget"] for row in values["rows"]]) == (4, [0.5])
    data = write("words;class\nhat?;tom\nkey?;leo\n")
    columns = ("--text-column", "words", "--label-column=class")
    assert json_of(run("evaluate", checkpoint_folder, "--data", data, *columns, "--json"))["n"] == 2


# Mistakes


@pytest.mark.parametrize("budget", ["0,5", "0", "-1", "1.5", "nan", "inf", "abc", "", "50%"])
@pytest.mark.parametrize("command", ["predict", "prune", "evaluate", "bench", "export"])
def test_what_is_no_budget(run, checkpoint_folder, tmp_path, command, budget):
    arguments = {
        "predict": ("--text", "hat?", "--budget", budget),
        "prune": ("--out", tmp_path / "small", "--budget", budget),
        "evaluate": ("--budgets", budget),
        "bench": ("--budgets", budget, "--rounds", 1, "--length", 8),
        "export": ("--out", tmp_path / "file.onnx", "--budget", budget),
    }
    said = mistake_of(run(command, checkpoint_folder, *arguments[command]))
    assert said.startswith("The budget '")
    assert said.endswith(".")
    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE = "/dev/null/x"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("predict TINY", "Give either --text, or both --input and --output."),
        ("predict TINY --text a --input b", "Give either --text, or both --input and --output."),
        ("predict TINY --input IN", "Give either --text, or both --input and --output."),
        ("predict TINY --input nothing.csv --output OUT", "There is no file nothing.csv"),
        ("predict TINY --input NOTEXT --output OUT", "has no text column"),
        ("predict TINY --input BINARY --output OUT", "is not a text file"),
        ("predict TINY --input IN --output IN", "exists already: give --output another name"),
        (f"predict TINY --input IN --output {IMPOSSIBLE}", "could not be written"),
        (f"predict TINY --input IN --output {'x' * 300}", "File name too long"),
        ("predict TINY --input IN --output OUT --text_column nope", "has no text column 'nope'"),
        ("predict nowhere --text a", "There is no checkpoint at nowhere"),
        (f"predict {'x' * 300} --text a", "File name too long"),
        ("predict IN --text a", "There is no checkpoint at"),
        ("prune TINY --budget 0.5 --out TINY", "exists already: give --out a new name"),
        (f"prune TINY --budget 0.5 --out {IMPOSSIBLE}", "could not be written"),
        (f"prune TINY --budget 0.5 --out {'x' * 300}", "File name too long"),
        ("bench TINY --length 99", "--length 99 is more than the 32 tokens this model reads"),
        ("export TINY --out x.txt", "The file x.txt cannot be named so: give a name that ends in .onnx."),
        ("export TINY --out x.onnx --limit 0", "0 examples are none to work with"),
        ("export TINY --out x.onnx --data nowhere", "There is no file or folder nowhere"),
        ("compare --task synthetic --out x.csv --seeds a", "The seeds 'a' are not usable"),
        ("bench TINY --batch 0", "--batch is 0: give a whole number of at least 1."),
        ("evaluate TINY --data nothing.csv", "There is no file or folder nothing.csv"),
        ("evaluate TINY --data UNKNOWN", "has labels that are not among the known classes: 'bob'"),
        ("evaluate TINY --data NOTEXT", "has no text column"),
        ("evaluate TINY --split tests", "There is no split 'tests': choose train, validation or test."),
        ("evaluate TINY --limit 0", "give a number of at least 1"),
        ("train --task sythetic --out NEW", "There is no task 'sythetic'"),
        ("train --task nothing.csv --out NEW", "There is no file nothing.csv"),
        ("train --task agnews --out NEW --data EMPTY", "name the folder with --data or BBA_DATA_DIR"),
        ("train --task IN --out NEW", "a class needs at least two"),
        ("train --task synthetic --out TINY", "exists already"),
        (f"train --task synthetic --out {IMPOSSIBLE}", "give --out another place"),
        ("train --task synthetic --out NEW --model.heads 3 --model.hidden_size 10", "--model.hidden_size 10 cannot be"),
        ("train --task synthetic --out NEW --model.heads 0", "--model.heads is 0: give at least 1."),
        ("train --task synthetic --out NEW --training.min_budget 2", "--training.min_budget is 2.0"),
        ("train --task synthetic --out NEW --training.dense.epochs 0", "A stage of 0.0 epochs"),
    ],
)
def test_a_mistake_is_answered_in_one_line(run, checkpoint_folder, write, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    places = {
        "TINY": checkpoint_folder,
        "IN": write("text,label\nhat?,tom\nkey?,leo\n"),
        "NOTEXT": write("a,b,c\n1,2,3\n", "no text.csv"),
        "BINARY": write(bytes(range(256)) * 20, "binary.csv"),
        "UNKNOWN": write("text,label\nhat?,bob\n", "unknown.csv"),
        "EMPTY": tmp_path / "empty",
        "OUT": tmp_path / "out.csv",
        "NEW": tmp_path / "new",
    }
    before = sorted(tmp_path.rglob("*"))
    assert said in mistake_of(run(*(places.get(word, word) for word in arguments.split())))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "subcommand"),
        (("nope",), "invalid choice: 'nope'"),
        (("predict",), "required: checkpoint"),
        (("prune", "x", "--budget", "0.5"), "required: out"),
        (("predict", "x", "--nope", "1"), "unrecognized arguments: --nope 1"),
        (("bench", "x", "--batch", "two"), "batch is 'two': give a whole number"),
        (("evaluate", "x", "--limit", "some"), "limit is 'some': give a whole number"),
        (
            ("train", "--task", "x", "--out", "y", "--training.dense.epochs", "some"),
            "dense.epochs is 'some': give a number",
        ),
        (("train", "--task", "x", "--out", "y", "--config", "nothing.yaml"), "File does not exist: "),
    ],
    ids=str,
)
def test_wrong_arguments_are_answered_in_one_line(run, arguments, said):
    assert said in mistake_of(run(*arguments), status=2)


def test_a_checkpoint_trained_on_a_file_asks_for_that_file(run, checkpoint_folder, tmp_path):
    folder = shutil.copytree(checkpoint_folder, tmp_path / "own")
    values = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**values, "task": "mine", "source": "the file mine.csv"}))
    said = mistake_of(run("evaluate", folder))
    assert said.startswith("own was trained on the file mine.csv: give that file with --data")


def test_a_checkpoint_without_a_report_asks_for_a_file(run, checkpoint_folder, tmp_path):
    folder = shutil.copytree(checkpoint_folder, tmp_path / "bare")
    (folder / "report.json").unlink()
    assert "give a file with --data" in mistake_of(run("evaluate", folder))
    assert json_of(run("list", "--root", tmp_path, "--json"))["rows"][0]["accuracy"] == "unknown"


def test_ctrl_c_ends_quietly(run, checkpoint_folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("bba.predict.BudgetedClassifier.from_pretrained", interrupted)
    status, out, err = run("predict", checkpoint_folder, "--text", "hat?")
    assert (status, out) == (130, "")
    assert err.startswith("Stopped.")
