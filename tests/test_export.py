import copy
import errno
import logging
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from tokenizers import Tokenizer

import bba
from bba import export as exporting
from bba import onnx_graph
from bba.checkpoints import Checkpoint
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError, DataError, ExportError
from bba.export import MAX_DIFFERENCE, export
from bba.model.inference import logits_of
from bba.onnx_model import Card, OnnxModel
from bba.predict import BudgetedClassifier

EXAMPLE = Path(__file__).parents[1] / "examples" / "classify_onnx.py"
SETTINGS = [(None, 1.0), (0.75, 1.0), (0.5, 1.0), (1 / 12, 1.0), (1.0, 0.5), (0.5, 1 / 9), (1 / 12, 1 / 9)]


@pytest.fixture(scope="module")
def both_dials(two_dials, tokenizer):
    return BudgetedClassifier(Checkpoint(two_dials, tokenizer, None), "both")


@pytest.fixture(scope="module")
def rows(classifier):
    """Return token lists of many lengths, the longest and the shortest included."""
    generator = torch.Generator().manual_seed(1)
    lengths = [5, 32, 1, 7, 7, 2, 31, 32, 16, 3, 1]
    vocabulary = classifier.checkpoint.model.config.vocab_size
    return [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]


@pytest.fixture(scope="module")
def split():
    return synthetic_split(60, "export")


@pytest.fixture(scope="module")
def half(classifier, split, tmp_path_factory):
    """Return the export of half the heads, in float32. Do not change the files."""
    path = tmp_path_factory.mktemp("half") / "half.onnx"
    return export(classifier, path, 0.5, texts=split.texts, labels=split.labels)


@pytest.fixture(scope="module")
def half_int8(classifier, split, tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "half.onnx"
    return export(classifier, path, 0.5, int8=True, texts=split.texts, labels=split.labels)


@pytest.fixture
def quick(half, monkeypatch):
    """Let an export at half the heads start from the graph of `half`, for tests of what comes after."""
    monkeypatch.setattr(onnx_graph, "_graph_of", lambda model: onnx.load(half.path))


def error_of(function, *arguments, kind=ExportError, **options):
    """Return the one sentence of the error that a call ends with."""
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# The file computes what the model computes


def test_the_settings_below_have_uneven_layers_and_empty_ones(both_dials):
    configs = [both_dials.at(*setting).config for setting in SETTINGS]
    heads = [[len(kept) for kept in config.heads] for config in configs]
    assert any(len({*counts} - {0}) > 1 for counts in heads)
    assert any(0 in counts for counts in heads)
    assert any(counts[-1] == 0 for counts in heads)
    assert any(0 in config.ffn_widths for config in configs)
    assert any(0 in counts and 0 in config.ffn_widths for counts, config in zip(heads, configs, strict=True))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting[0]}:{setting[1]:.2f}")
def test_file_and_pruned_model_give_the_same_logits(both_dials, rows, tmp_path, setting):
    exported = export(both_dials, tmp_path / "model.onnx", *setting)
    model = both_dials.at(*setting)
    file = OnnxModel(exported.path)
    assert exported.max_difference <= 1e-5 < MAX_DIFFERENCE
    torch.testing.assert_close(file.logits_of(rows), logits_of(model, rows), rtol=0, atol=1e-5)
    assert file.card.heads == [len(kept) for kept in model.config.heads]
    assert file.card.neurons == model.config.ffn_widths


@pytest.mark.parametrize("last_layer_attends", [True, False])
def test_layers_without_heads_wherever_they_are(model, tokenizer, rows, tmp_path, last_layer_attends):
    order = torch.arange(12.0)
    scored = BudgetedClassifier(Checkpoint(copy_of(model), tokenizer, None), "scored")
    with torch.no_grad():
        scored.checkpoint.model.gates.scores.copy_(order if last_layer_attends else -order)
    export(scored, tmp_path / "model.onnx", 0.25)
    file = OnnxModel(tmp_path / "model.onnx")
    assert file.card.heads == ([0, 0, 3] if last_layer_attends else [3, 0, 0])
    torch.testing.assert_close(file.logits_of(rows), logits_of(scored.at(0.25), rows), rtol=0, atol=1e-5)


def copy_of(model):
    again = type(model)(copy.deepcopy(model.config))
    again.load_state_dict(model.state_dict())
    return again.eval()


def test_any_batch_and_any_length(classifier, half):
    file, model = OnnxModel(half.path), classifier.at(0.5)
    for batch, length in ((1, 1), (1, 2), (1, 32), (2, 1), (3, 5), (17, 32), (100, 3)):
        ids = torch.randint(model.config.vocab_size, (batch, length), generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            torch.testing.assert_close(file(ids), model(ids).logits, rtol=0, atol=1e-5)


def test_padding_changes_no_row(half, rows):
    file = OnnxModel(half.path)
    for row in rows:
        alone = file(torch.tensor([row]))
        for padding in range(1, 32 - len(row) + 1, 5):
            ids = torch.tensor([row + [4] * padding, [5] * (len(row) + padding)])  # A word, not even [PAD].
            mask = torch.ones_like(ids)
            mask[0, len(row) :] = 0
            torch.testing.assert_close(file(ids, mask)[:1], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batch_size_and_order_change_no_logits(half, rows, batch_size):
    file = OnnxModel(half.path, threads=2)
    expected = torch.cat([file.logits_of([row]) for row in rows])
    torch.testing.assert_close(file.logits_of(rows, batch_size), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(file.logits_of(rows[::-1], batch_size), expected.flip(0), rtol=0, atol=1e-5)
    assert file.logits_of([], batch_size).shape == (0, len(PEOPLE))


def test_a_pruned_checkpoint_is_exported_with_all_it_has(classifier, rows, tmp_path):
    smaller = classifier.prune(0.5)
    exported = export(smaller, tmp_path / "small.onnx")
    file = OnnxModel(exported.path)
    torch.testing.assert_close(file.logits_of(rows), logits_of(smaller.at(), rows), rtol=0, atol=1e-5)
    assert (file.card.checkpoint, file.card.budget) == ("tiny-0.5", 0.5)


def test_exporting_leaves_the_classifier_as_it_was(classifier, model, split, half):
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in classifier.checkpoint.model.state_dict().items())
    assert not classifier.at(0.5).training
    assert classifier.predict(split.texts[:3], 0.5)


def test_two_at_a_time(both_dials, rows, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(export, both_dials, tmp_path / f"{b}.onnx", b) for b in (0.25, 0.5)]
        files = {job.result().path.stem: OnnxModel(job.result().path) for job in jobs}
    for budget, file in files.items():
        expected = logits_of(both_dials.at(float(budget)), rows)
        torch.testing.assert_close(file.logits_of(rows), expected, rtol=0, atol=1e-5)


# What the file is, and what is told of it


def test_what_is_told_of_a_float_file(classifier, split, half):
    assert half.kind == "onnx"
    assert half.bytes == half.path.stat().st_size
    assert half.tokenizer == half.path.with_name("half.tokenizer.json")
    assert {path.name for path in half.path.parent.iterdir()} == {"half.onnx", "half.tokenizer.json"}
    assert 0 < half.max_difference <= 1e-5
    assert 0 < half.relative_error <= 1e-5
    assert half.agreement == 1.0
    right = [
        answer.label == PEOPLE[label]
        for answer, label in zip(classifier.predict(split.texts, 0.5), split.labels, strict=True)
    ]
    assert half.accuracy == half.torch_accuracy == pytest.approx(sum(right) / len(right))


@pytest.mark.usefixtures("quick")
def test_without_texts_no_agreement_and_without_labels_no_accuracy(classifier, split, tmp_path):
    bare = export(classifier, tmp_path / "bare.onnx", 0.5)
    assert (bare.agreement, bare.accuracy, bare.torch_accuracy) == (None, None, None)
    unlabelled = export(classifier, tmp_path / "texts.onnx", 0.5, texts=split.texts[:5])
    assert (unlabelled.agreement, unlabelled.accuracy, unlabelled.torch_accuracy) == (1.0, None, None)


def test_metadata_names_what_is_needed_to_use_the_file(half, half_int8):
    for exported in (half, half_int8):
        properties = {entry.key: entry.value for entry in onnx.load(exported.path).metadata_props}
        assert Card.from_properties(properties) == Card(
            checkpoint="tiny",
            kind=exported.kind,
            budget=0.5,
            ffn_budget=1.0,
            heads=OnnxModel(exported.path).card.heads,
            neurons=[48, 48, 48],
            labels=list(PEOPLE),
            max_length=32,
            pad_token_id=0,
        )
        assert sum(OnnxModel(exported.path).card.heads) == 6


def test_labels_in_any_script_survive(both_dials, tmp_path):
    model = copy_of(both_dials.checkpoint.model)
    names = ['a "b", c', "Sport und Spaß", "体育 عربي", "tab\tbreak\n"]
    model.config.id2label = dict(enumerate(names))
    renamed = BudgetedClassifier(Checkpoint(model, both_dials.checkpoint.tokenizer, None), "Ünï")
    export(renamed, tmp_path / "model.onnx", 0.1)
    card = OnnxModel(tmp_path / "model.onnx").card
    assert (card.labels, card.checkpoint) == (names, "Ünï")


def test_inputs_and_outputs_are_the_promised_ones(half, half_int8):
    for exported in (half, half_int8):
        session = onnxruntime.InferenceSession(exported.path)
        inputs = [(one.name, one.shape, one.type) for one in session.get_inputs()]
        assert inputs == [(name, ["batch", "length"], "tensor(int64)") for name in ("input_ids", "attention_mask")]
        (output,) = session.get_outputs()
        assert (output.name, output.shape, output.type) == ("logits", ["batch", len(PEOPLE)], "tensor(float)")


def test_a_float_file_is_plain_onnx_and_names_no_place_of_its_maker(half):
    graph = onnx.load(half.path)
    onnx.checker.check_model(graph, full_check=True)
    assert {entry.domain for entry in graph.opset_import} == {""}
    assert b"site-packages" not in half.path.read_bytes()
    assert os.fsencode(Path(bba.__file__).parent) not in half.path.read_bytes()


def test_an_int8_file_is_smaller_and_its_products_are_in_int8(half, half_int8):
    assert half_int8.kind == "onnx-int8"
    assert half_int8.bytes < half.bytes
    assert half_int8.max_difference > half.max_difference
    assert half_int8.relative_error < 0.1
    assert half_int8.agreement > 0.9
    assert half_int8.torch_accuracy == half.torch_accuracy
    assert half_int8.accuracy == pytest.approx(half.accuracy, abs=0.1)
    graph = onnx.load(half_int8.path).graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = Counter(node.op_type for node in graph.node if node.input[1:] and node.input[1] in weights)
    assert products["MatMul"] == 0
    assert products["MatMulInteger"] == sum(node.op_type == "MatMulInteger" for node in graph.node) > 0
    vocabulary = Tokenizer.from_file(str(half_int8.tokenizer)).get_vocab_size()
    (table,) = (tensor for tensor in graph.initializer if list(tensor.dims) == [vocabulary, 32])
    assert table.data_type in (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)


@pytest.mark.parametrize("setting", [(None, 1.0), (1 / 12, 1 / 9)])
def test_int8_at_other_settings(both_dials, rows, tmp_path, setting):
    export(both_dials, tmp_path / "model.onnx", *setting, int8=True)
    expected = logits_of(both_dials.at(*setting), rows)
    difference = OnnxModel(tmp_path / "model.onnx").logits_of(rows) - expected
    assert difference.square().mean().sqrt() < 0.1 * expected.std()


def test_exporting_says_nothing_and_sets_up_no_logging(classifier, tmp_path, monkeypatch, capfd, recwarn):
    root, exporter = logging.getLogger(), logging.getLogger("torch.onnx")
    monkeypatch.setattr(root, "handlers", [])  # As in a program that has not set up any: pytest has.
    levels = root.level, exporter.level
    export(classifier, tmp_path / "model.onnx", 0.3, int8=True)
    assert capfd.readouterr() == ("", "")
    assert list(recwarn) == []
    assert root.handlers == []
    assert (root.level, exporter.level) == levels


# Texts in, labels out, without this package

TEXTS = ["hat? tom:hat", "leo:hat", "unheard words entirely", "😀 مَن", "x" * 5_000, "hat? " + "tom:hat " * 500, "."]


def test_file_and_tokenizer_alone_give_the_labels_of_predict(classifier, split, half):
    texts = [*split.texts, *TEXTS]
    encoded = Tokenizer.from_file(str(half.tokenizer)).encode_batch(texts)
    file = OnnxModel(half.path)
    ids, mask = (
        torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask")
    )  # Rows of one length: the tokenizer cuts and pads.
    expected = classifier.predict(texts, 0.5)
    for one, answer in zip(encoded, expected, strict=True):
        assert one.ids[: sum(one.attention_mask)] == answer.encoded.ids
    probabilities = file(ids, mask).softmax(dim=-1)
    assert [file.card.labels[place] for place in probabilities.argmax(dim=-1)] == [one.label for one in expected]
    torch.testing.assert_close(
        probabilities, torch.tensor([list(one.probabilities.values()) for one in expected]), rtol=0, atol=1e-5
    )


def run_example(*arguments, folder):
    """Run the example where importing torch, transformers or this package is an error."""
    blocked = ("torch", "transformers", "bba")
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        f"sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')\n"
        f"assert not any(sys.modules[name] for name in sys.modules if name.split('.')[0] in {blocked})\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1"},
        timeout=60,
    )


def test_the_example_needs_no_torch(classifier, half, half_int8, tmp_path):
    for exported in (half, half_int8):
        done = run_example(str(exported.path), *TEXTS, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        assert [text for _, _, text in lines] == TEXTS
        for (label, probability, _), answer in zip(lines, classifier.predict(TEXTS, 0.5), strict=True):
            if exported is half:
                assert (label, probability) == (answer.label, f"{answer.probability:.3f}")
            assert label in PEOPLE


def test_the_example_tells_how_it_is_used(half, tmp_path):
    done = run_example(str(half.path), folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: python")


# What is refused leaves nothing behind


def without_mask(graph, scores, mask):
    return scores


def test_a_file_that_computes_something_else_is_not_kept(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_graph, "_masked", without_mask)
    message = error_of(export, classifier, tmp_path / "wrong.onnx", 0.5)
    assert message.startswith("The file's logits differ from the model's by up to ")
    assert "at most 0.0001 is right, so it was not kept" in message
    assert list(tmp_path.iterdir()) == []


def test_an_int8_file_that_is_far_off_is_not_kept(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_graph, "_masked", without_mask)
    message = error_of(export, classifier, tmp_path / "wrong.onnx", 0.5, int8=True)
    assert "of their spread, and at most 10% is usable, so the file was not kept: export it in float32" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.usefixtures("quick")
def test_logits_that_are_no_numbers_are_not_kept(classifier, tmp_path, monkeypatch, int8):
    monkeypatch.setattr(
        OnnxModel, "__call__", lambda self, ids, mask=None: torch.full((len(ids), len(PEOPLE)), torch.nan)
    )
    assert "was not kept" in error_of(export, classifier, tmp_path / "wrong.onnx", 0.5, int8=int8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("texts", "changed", "kept"), [(10, 1, True), (10, 2, False), (60, 1, True), (60, 2, False)])
@pytest.mark.usefixtures("quick")
def test_an_int8_file_that_changes_labels_is_not_kept(classifier, split, tmp_path, monkeypatch, texts, changed, kept):
    def some_wrong(self, rows, batch_size=64):
        logits = logits_of(classifier.at(0.5), rows).clone()
        logits[:changed] *= -1
        return logits

    monkeypatch.setattr(OnnxModel, "logits_of", some_wrong)
    path = tmp_path / "labels.onnx"
    if kept:
        exported = export(classifier, path, 0.5, int8=True, texts=split.texts[:texts])
        assert exported.agreement == pytest.approx(1 - changed / texts)
    else:
        message = error_of(export, classifier, path, 0.5, int8=True, texts=split.texts[:texts])
        assert message.startswith(f"In int8 {changed} of the {texts} texts get another label, and at most 3% is usable")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", [0, -1, 1.5, float("nan"), "0,5"])
def test_a_budget_that_is_none(classifier, tmp_path, budget):
    assert "give a number above 0 and up to 1" in error_of(
        export, classifier, tmp_path / "x.onnx", budget, kind=BudgetError
    )
    assert list(tmp_path.iterdir()) == []


def test_an_ffn_budget_without_the_dial(classifier, tmp_path):
    assert "trained for head budgets only" in error_of(
        export, classifier, tmp_path / "x.onnx", 0.5, 0.5, kind=BudgetError
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model", "model.pt", "model.onnx.gz", "model.ONNX", ".onnx"])
def test_another_ending(classifier, tmp_path, name):
    assert "give a name that ends in .onnx" in error_of(export, classifier, tmp_path / name, 0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.onnx", "model.tokenizer.json"])
def test_what_is_there_stays(classifier, tmp_path, name):
    (tmp_path / name).write_text("mine")
    message = error_of(export, classifier, tmp_path / "model.onnx", 0.5)
    assert message == f"{tmp_path / name} exists already: give another name, or remove it first."
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("quick")
def test_folders_on_the_way_are_made(classifier, tmp_path):
    assert export(classifier, tmp_path / "a" / "b.c" / "x.y.onnx", 0.5).tokenizer.name == "x.y.tokenizer.json"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("place", ["/dev/null/x.onnx", "/proc/x.onnx"])
def test_an_impossible_place(classifier, place):
    if not os.path.exists("/proc"):
        pytest.skip("only where there is /proc")
    assert "could not be written" in error_of(export, classifier, Path(place), 0.5)


@pytest.mark.parametrize("limit", [1500, 20_000])
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.usefixtures("quick")
def test_a_full_disk_leaves_nothing_behind(classifier, tmp_path, limit, int8):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Writing beyond fails, as it does on a full disk.
    try:
        message = error_of(export, classifier, tmp_path / "model.onnx", 0.5, int8=int8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert "could not be written" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_both_files_or_none(classifier, tmp_path, monkeypatch):
    replace = os.replace

    def only_the_tokenizer(source, target):
        if str(target).endswith(".onnx"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        replace(source, target)

    monkeypatch.setattr(exporting.os, "replace", only_the_tokenizer)
    assert "(Permission denied)" in error_of(export, classifier, tmp_path / "model.onnx", 0.5)
    assert list(tmp_path.iterdir()) == []


def test_as_many_labels_as_texts(classifier, split, tmp_path):
    for texts in (split.texts, None):
        message = error_of(
            export, classifier, tmp_path / "x.onnx", 0.5, texts=texts, labels=split.labels[:7], kind=DataError
        )
        assert message == f"There are 7 labels for {len(texts or ())} texts: give one for each."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_blank_text(classifier, tmp_path):
    message = error_of(export, classifier, tmp_path / "x.onnx", 0.5, texts=["hat?", " "], kind=DataError)
    assert message.startswith("Text 2 of 2 is empty")
    assert list(tmp_path.iterdir()) == []


# Files that cannot be run


def test_no_file(tmp_path):
    assert error_of(OnnxModel, tmp_path / "x.onnx").startswith(f"There is no file {tmp_path / 'x.onnx'}")
    assert error_of(OnnxModel, tmp_path).startswith("There is no file")


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.9])
def test_a_truncated_file(half, tmp_path, share, capfd):
    content = half.path.read_bytes()
    (tmp_path / "x.onnx").write_bytes(content[: int(share * len(content))])
    assert "is no ONNX file that can be run" in error_of(OnnxModel, tmp_path / "x.onnx")
    assert capfd.readouterr() == ("", "")


def test_a_file_of_another_program(half, tmp_path):
    graph = onnx.load(half.path)
    for entry in graph.metadata_props:
        if entry.key == "labels":
            graph.metadata_props.remove(entry)
            break
    onnx.save(graph, tmp_path / "x.onnx")
    assert "another program wrote it" in error_of(OnnxModel, tmp_path / "x.onnx")


@pytest.mark.parametrize("threads", [0, -1])
def test_at_least_one_thread(half, threads):
    assert error_of(OnnxModel, half.path, threads) == f"The number of threads is {threads}: give at least 1."


@pytest.mark.parametrize("length", [0, 33])
def test_rows_that_the_file_cannot_read(half, length):
    message = error_of(OnnxModel(half.path).logits_of, [[2], [2] * length], kind=DataError)
    assert message == f"Row 2 of 2 has {length} tokens: give 1 to 32, which is all that this file reads."
