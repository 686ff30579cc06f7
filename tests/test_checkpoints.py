import errno
import json
import os
import pickle
import resource
import shutil
import signal

import pytest
import torch
import transformers
from transformers import AutoModelForSequenceClassification

import bba.model  # noqa: F401 - it registers the model with the Auto classes
from bba import checkpoints
from bba.checkpoints import Checkpoint
from bba.data.synthetic import synthetic_split
from bba.data.tokenizers import train_word_tokenizer
from bba.errors import CheckpointError
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier

FILES = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "report.json", "README.md"}


@pytest.fixture
def copy(checkpoint_folder, tmp_path):
    """Return a copy of the checkpoint, to be damaged."""
    return shutil.copytree(checkpoint_folder, tmp_path / "copy")


def error_of(function, *arguments):
    """Return the message of the error, having seen that it is one sentence."""
    with pytest.raises(CheckpointError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert "Error:" not in message
    assert len(message) < 600
    return message


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


# Whole checkpoints


def test_a_checkpoint_is_exactly_these_files(checkpoint_folder):
    assert {path.name for path in checkpoint_folder.iterdir()} == FILES
    assert [path.name for path in checkpoint_folder.parent.iterdir()] == [checkpoint_folder.name]


def test_what_is_loaded_is_what_was_saved(checkpoint_folder, model, tokenizer, report):
    loaded = checkpoints.load(checkpoint_folder)
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.model.state_dict().items())
    assert not loaded.model.training
    assert loaded.report == report
    texts = synthetic_split(20, "saved").texts
    assert loaded.tokenizer(texts)["input_ids"] == tokenizer(texts)["input_ids"]


def test_the_auto_class_loads_the_folder(checkpoint_folder, model):
    loaded = AutoModelForSequenceClassification.from_pretrained(checkpoint_folder, dtype=torch.float32)
    rows = [[2, 5, 9, 3], [2, 7, 3]]
    assert torch.equal(logits_of(loaded.eval(), rows), logits_of(model, rows))


def test_the_card_names_data_recipe_and_every_budget(checkpoint_folder, report):
    card = (checkpoint_folder / "README.md").read_text()
    for part in ("synthetic", "100 test", "seed 0", "| 0.05 |", "| 1 |", report.licence, "Wilson"):
        assert part in card


def test_the_report_is_read_without_the_weights(copy, report):
    (copy / "model.safetensors").unlink()
    assert checkpoints.read_report(copy) == report


def test_a_folder_without_a_report_works(copy):
    (copy / "report.json").unlink()
    classifier = BudgetedClassifier.from_pretrained(copy)
    assert classifier.report is None
    assert classifier.prune(0.5).report is None
    assert classifier.predict(["hat? tom:hat"], 0.5)[0].heads == 6


def test_checkpoints_are_listed_by_name(checkpoint_folder, tmp_path):
    for name in ("b", "a", ".a.unfinished"):
        shutil.copytree(checkpoint_folder, tmp_path / name)
    (tmp_path / "no checkpoint").mkdir()
    (tmp_path / "file").touch()
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path)] == ["a", "b"]
    assert checkpoints.checkpoint_folders(tmp_path / "nowhere") == []


# Damaged ones


def test_a_missing_folder_is_answered_with_what_there_is(checkpoint_folder):
    message = error_of(checkpoints.load, checkpoint_folder.parent / "tinny")
    assert message.endswith(f"in {checkpoint_folder.parent} there are: tiny.")


@pytest.mark.parametrize("name", sorted(FILES - {"report.json", "README.md"}))
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    assert f"{name} is missing" in error_of(checkpoints.load, copy)


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_truncated_weights(copy, keep):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "is damaged" in error_of(checkpoints.load, copy)


class CreatesAFile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_in_disguise_is_refused_and_never_run(copy, tmp_path):
    trace = tmp_path / "it ran"
    content = pickle.dumps(CreatesAFile(trace))
    pickle.loads(content).close()
    assert trace.exists()  # The pickle is a live one.
    trace.unlink()
    (copy / "model.safetensors").write_bytes(content)
    (copy / "pytorch_model.bin").write_bytes(content)
    assert "is damaged" in error_of(checkpoints.load, copy)
    assert not trace.exists()


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": 64},
        {"kept_heads": [[0], [1], [2]]},
        {"dense_heads": [4] * 4, "kept_heads": None, "ffn_sizes": [48] * 4, "kept_blocks": None},
        {"dense_heads": [4] * 2, "kept_heads": [[0, 1, 2, 3]] * 2, "ffn_sizes": [48] * 2, "kept_blocks": None},
        {"id2label": {"0": "a"}, "label2id": {"a": 0}},
        {"vocab_size": 10**13},
    ],
    ids=str,
)
def test_weights_of_other_shapes(copy, values):
    change_config(copy, **values)
    message = error_of(checkpoints.load, copy)
    assert "its weights do not have the shapes that its configuration names" in message


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"hidden_size": -4}, "hidden_size is -4; expected at least 1"),
        ({"vocab_size": 0}, "vocab_size is 0; expected at least 1"),
        ({"pad_token_id": 1000}, "pad_token_id is 1000; expected one of the 42 tokens"),
        ({"hidden_size": "wide"}, "hidden_size' expected int, got str"),
        ({"dense_heads": None}, "dense_heads"),
        ({"kept_heads": [[0], [1]]}, "The lists name other numbers of layers (dense_heads 3, kept_heads 2"),
        ({"id2label": {"x": "a"}}, "invalid literal"),
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be(copy, values, reason):
    change_config(copy, **values)
    assert reason in error_of(checkpoints.load, copy)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b'"bba"'])
def test_a_configuration_that_is_no_configuration(copy, content):
    (copy / "config.json").write_bytes(content)
    assert "is not JSON of a configuration" in error_of(checkpoints.load, copy)


@pytest.mark.parametrize("kind", ["bert", None])
def test_another_kind_of_model(copy, kind):
    change_config(copy, model_type=kind)
    assert f"holds a {kind!r} model, not a budgeted one" in error_of(checkpoints.load, copy)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", ""),
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"added_tokens": [], "model": 5}'),
        ("tokenizer_config.json", ""),
        ("tokenizer_config.json", "{"),
    ],
)
def test_a_damaged_tokenizer(copy, name, content):
    (copy / name).write_text(content)
    assert "its tokenizer cannot be read" in error_of(checkpoints.load, copy)


def test_the_tokenizer_of_another_model(copy):
    words = " ".join(f"word{number} word{number}" for number in range(100))
    train_word_tokenizer([words], vocab_size=200, max_length=32).save_pretrained(copy)
    assert "its tokenizer has 104 tokens, its model 42" in error_of(checkpoints.load, copy)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "has format None but this version reads format 2"),
        (b'{"format": 99}', "has format 99 but this version reads format 2"),
        (b'{"format": 2}', "is not complete"),
        (b'{"format": 2, "latency": []}', "is not complete"),
        (b'{"format": 2, "latency": {"rows": [{"odd": 1}]}}', "is not complete"),
    ],
)
def test_a_damaged_report(copy, content, reason):
    (copy / "report.json").write_bytes(content)
    for read in (checkpoints.load, checkpoints.read_report):
        message = error_of(read, copy)
        assert reason in message
        assert str(copy) in message


# Saving


@pytest.fixture
def checkpoint(model, tokenizer, report):
    return Checkpoint(model, tokenizer, report)


def test_saving_never_overwrites(checkpoint, copy):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert error_of(checkpoints.save, copy, checkpoint, "card").endswith("give --out a new name, or remove it first.")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_saving_does_not_overwrite_a_file(checkpoint, tmp_path):
    (tmp_path / "file").write_text("mine")
    error_of(checkpoints.save, tmp_path / "file", checkpoint, "card")
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_makes_the_folders_on_the_way_and_fills_an_empty_one(checkpoint, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new" / "deep"):
        checkpoints.save(folder, checkpoint, "card")
        assert {path.name for path in folder.iterdir()} == FILES


@pytest.mark.parametrize("part", ["weights", "tokenizer"])
def test_a_save_that_fails_midway_leaves_nothing_behind(checkpoint, tmp_path, monkeypatch, part):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner, writes = (checkpoints, "save_file") if part == "weights" else (type(checkpoint.tokenizer), "save_pretrained")
    monkeypatch.setattr(owner, writes, fail)
    message = error_of(checkpoints.save, tmp_path / "parent" / "x", checkpoint, "card")
    assert "(No space left on device): make room or choose another place" in message
    assert list((tmp_path / "parent").iterdir()) == []


@pytest.mark.parametrize("limit", [100, 1500, 10_000, 45_000])
def test_a_full_disk_leaves_nothing_behind(checkpoint, tmp_path, limit):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Writing beyond fails, as it does on a full disk.
    try:
        message = error_of(checkpoints.save, tmp_path / "parent" / "x", checkpoint, "card" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert "could not be written" in message
    assert list((tmp_path / "parent").iterdir()) == []


@pytest.mark.parametrize("place", ["/dev/null/x", "/proc/x/y"])
def test_an_impossible_place(checkpoint, place):
    if not os.path.exists("/proc"):
        pytest.skip("only where there is /proc")
    assert "could not be written" in error_of(checkpoints.save, checkpoints.Path(place), checkpoint, "card")


def test_loading_and_saving_leave_transformers_as_it_was(copy, checkpoint, tmp_path):
    verbosity = transformers.utils.logging.get_verbosity()
    shown = transformers.utils.logging.is_progress_bar_enabled()
    checkpoints.load(copy)
    checkpoints.save(tmp_path / "new", checkpoint, "card")
    change_config(copy, hidden_size=64)
    error_of(checkpoints.load, copy)
    assert transformers.utils.logging.get_verbosity() == verbosity
    assert transformers.utils.logging.is_progress_bar_enabled() == shown
