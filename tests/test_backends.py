import gc
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import torch
from streamlit.testing.v1 import AppTest

from bba import backends
from bba.__main__ import main
from bba.backends import BACKENDS, INT8, NAMES, ONNX, TORCH, Variants, onnx_of
from bba.checkpoints import Checkpoint
from bba.data.synthetic import synthetic_split
from bba.errors import BudgetError
from bba.measure.latency import LatencySettings, measure_latency
from bba.measure.metrics import score_budgets
from bba.measure.report import Report
from bba.model import Setting
from bba.predict import BudgetedClassifier
from bba.pruning.cost import predicted_speedup
from bba.pruning.plan import plan_at
from bba.pruning.surgery import prune_to

APP = str(Path(__file__).parents[1] / "app.py")
QUICK = LatencySettings(length=8, rounds=2)


@pytest.fixture(scope="module")
def texts():
    return synthetic_split(60, "backends").texts


@pytest.fixture(scope="module")
def both_dials(two_dials, tokenizer):
    return BudgetedClassifier(Checkpoint(two_dials, tokenizer, None), "both")


@pytest.fixture
def order(monkeypatch):
    """Return an empty record of what is kept, for this test only."""
    monkeypatch.setattr(backends, "_order", backends._Order())
    return backends._order


def probabilities(predictions):
    return torch.tensor([list(prediction.probabilities.values()) for prediction in predictions])


# Answers


@pytest.mark.parametrize("setting", [(None, 1.0), (0.5, 1.0), (0.5, 1 / 3), (1 / 12, 1 / 9)])
def test_onnx_gives_the_answers_of_torch(both_dials, texts, setting):
    expected = both_dials.predict(texts, *setting)
    answers = both_dials.on(ONNX).predict(texts, *setting)
    torch.testing.assert_close(probabilities(answers), probabilities(expected), rtol=0, atol=1e-5)
    assert {answer.backend for answer in answers} == {ONNX}
    assert {answer.backend for answer in expected} == {TORCH}
    for answer, one in zip(answers, expected, strict=True):
        assert (answer.heads, answer.cost, answer.encoder_cost) == (one.heads, one.cost, one.encoder_cost)


def test_int8_gives_nearly_the_answers_of_torch_and_not_quite(both_dials, texts):
    expected, answers = both_dials.predict(texts, 0.5), both_dials.on(INT8).predict(texts, 0.5)
    apart = (probabilities(answers) - probabilities(expected)).abs()
    assert 1e-6 < apart.max() < 0.2
    assert sum(one.label == other.label for one, other in zip(answers, expected, strict=True)) >= 0.9 * len(texts)


def test_a_classifier_on_another_backend_shares_its_memory_and_changes_nothing(classifier):
    other = classifier.on(ONNX)
    assert (classifier.backend, other.backend) == (TORCH, ONNX)
    assert other.checkpoint is classifier.checkpoint
    assert other.at(0.5) is classifier.at(0.5)
    assert other.running(0.5) is classifier.on(ONNX).running(0.5)


def test_what_is_pruned_or_saved_on_a_backend_is_the_same_checkpoint(both_dials, texts, tmp_path):
    smaller = both_dials.on(ONNX).prune(0.5, 1 / 3)
    assert smaller.backend == ONNX
    expected = probabilities(both_dials.predict(texts, 0.5, 1 / 3))
    torch.testing.assert_close(probabilities(smaller.predict(texts)), expected, rtol=0, atol=1e-5)
    smaller.save_pretrained(tmp_path / "small")
    loaded = BudgetedClassifier.from_pretrained(tmp_path / "small")
    assert loaded.backend == TORCH
    torch.testing.assert_close(probabilities(loaded.predict(texts)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", ["", "tensorrt", "Torch", "onnx_int8", None])
def test_an_unknown_backend_is_refused(classifier, backend):
    with pytest.raises(BudgetError) as caught:
        classifier.on(backend)
    assert str(caught.value) == f"There is no backend {backend!r}: choose torch, onnx or onnx-int8."


@pytest.mark.parametrize("backend", [ONNX, INT8])
def test_threads_share_a_graph_and_get_the_answers_of_one(both_dials, texts, monkeypatch, backend):
    made, fresh = [], BudgetedClassifier(both_dials.checkpoint, "fresh")
    monkeypatch.setattr(backends, "onnx_of", lambda *arguments: made.append(arguments) or onnx_of(*arguments))
    expected = fresh.on(backend).predict(texts, 0.5)
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(fresh.on(backend).predict, texts, budget) for budget in (0.5, 0.25) * 6]
    for job in jobs[::2]:
        torch.testing.assert_close(probabilities(job.result()), probabilities(expected), rtol=0, atol=1e-6)
    assert len(made) == 2


def test_a_session_uses_as_many_threads_as_asked(model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        backends, "onnx_of", lambda model, backend, threads: seen.append(threads) or onnx_of(model, backend, threads)
    )
    variants = Variants(model)
    variants.running(plan_at(model, 0.5), ONNX, threads=2)
    variants.running(plan_at(model, 0.5), ONNX)
    variants.running(plan_at(model, 0.5), ONNX, threads=2)
    assert seen == [2, torch.get_num_threads()]


# What is kept


def test_what_is_kept_is_bounded_in_bytes_over_all_checkpoints(model, two_dials, order, monkeypatch):
    one, other = Variants(model), Variants(two_dials)
    first = one.pruned(plan_at(model, 1 / 12))
    (size,) = order.sizes.values()
    assert 0 < size < sum(weight.nbytes for weight in first.parameters())
    most = 2 * sum(weight.nbytes for weight in model.parameters())
    monkeypatch.setattr(backends, "MAX_BYTES", most)
    for heads in range(1, 12):
        one.pruned(plan_at(model, heads / 12))
        other.pruned(plan_at(two_dials, heads / 12))
        assert sum(order.sizes.values()) <= most
        assert len(order.sizes) == len(one.made) + len(other.made)
    assert len(order.sizes) > 2
    assert one.pruned(plan_at(model, 1 / 12)) is not first


def test_what_was_used_last_outlives_what_was_made_last(model, order, monkeypatch):
    variants = Variants(model)
    plans = [plan_at(model, heads / 12) for heads in (3, 4, 5)]
    used, unused = (variants.pruned(plan) for plan in plans[:2])
    assert variants.pruned(plans[0]) is used
    monkeypatch.setattr(backends, "MAX_BYTES", sum(order.sizes.values()))
    variants.pruned(plans[2])
    assert variants.pruned(plans[0]) is used
    assert variants.pruned(plans[1]) is not unused


def test_what_was_made_of_a_model_goes_with_it(model, two_dials, order):
    variants = Variants(model)
    made = weakref.ref(variants.pruned(plan_at(model, 0.5)))
    del variants
    gc.collect()
    assert made() is None
    other = Variants(two_dials)
    other.pruned(plan_at(two_dials, 0.5))
    assert len(order.sizes) == 1


def test_who_asks_for_what_is_there_does_not_wait_for_what_is_being_made(model, order, monkeypatch):
    variants, go_on, making = Variants(model), threading.Event(), threading.Event()
    there = variants.running(plan_at(model, 0.5), ONNX)

    def slow(*arguments):
        making.set()
        go_on.wait(20)
        return onnx_of(*arguments)

    monkeypatch.setattr(backends, "onnx_of", slow)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(variants.running, plan_at(model, 0.25), ONNX)
        assert making.wait(20)
        try:
            assert pool.submit(variants.running, plan_at(model, 0.5), ONNX).result(timeout=20) is there
        finally:
            go_on.set()
        assert other.result() is not there


def test_what_a_plan_leaves_whole_is_not_copied(two_dials):
    model = Variants(two_dials).pruned(plan_at(two_dials, 0.5))
    for layer, whole in zip(model.encoder.layers, two_dials.encoder.layers, strict=True):
        assert layer.ffn.input.weight.data_ptr() == whole.ffn.input.weight.data_ptr()


def test_what_was_used_last_stays_even_if_it_is_too_large(model, order, monkeypatch):
    monkeypatch.setattr(backends, "MAX_BYTES", 1)
    variants = Variants(model)
    graph = variants.running(plan_at(model, 0.5), ONNX)
    assert variants.running(plan_at(model, 0.5), ONNX) is graph


def test_the_whole_model_is_not_copied(model, order):
    assert Variants(model).pruned(plan_at(model, 1.0)) is model
    assert not order.sizes


# Measuring


def test_scores_on_a_backend_are_of_its_own_answers(model, tokenizer):
    split = synthetic_split(80, "scores")
    rows = [tokenizer(text)["input_ids"] for text in split.texts]
    settings = [Setting(0.25), Setting(0.5), Setting(1.0)]
    for backend in (ONNX, INT8):
        for row in score_budgets(model, rows, split.labels, settings, backend=backend):
            graph = onnx_of(prune_to(model, *row.setting), backend, threads=1)
            right = graph.logits_of(rows).argmax(dim=-1) == torch.tensor(split.labels)
            assert row.accuracy == pytest.approx(float(right.double().mean()))
    in_torch = score_budgets(model, rows, split.labels, settings)
    assert in_torch == score_budgets(model, rows, split.labels, settings, backend=ONNX)


def test_latency_of_the_asked_backends_beside_dense_in_torch(model):
    settings = LatencySettings(length=8, rounds=2, backends=(INT8, TORCH))
    measured = measure_latency(model, [Setting(0.5), Setting(1.0)], settings)
    rows = [(row.backend, row.budget, row.heads) for row in measured.rows]
    assert rows == [(name, *row) for name in (TORCH, INT8) for row in ((1.0, 12), (0.5, 6), (0.0, 0))]
    assert measured.rows[0].speedup == 1
    assert measured.rows[4].predicted_speedup == predicted_speedup(prune_to(model, 0.5).config, model.config, 8)
    assert measured.onnxruntime
    assert [row.budget for row in measured.on(INT8).rows] == [1.0, 0.5, 0.0]


def test_dense_in_torch_takes_part_where_only_onnx_is_asked_for(model):
    measured = measure_latency(model, [Setting(0.5)], LatencySettings(length=8, rounds=2, backends=(ONNX,)))
    assert [(row.backend, row.heads) for row in measured.rows] == [(TORCH, 12), (ONNX, 12), (ONNX, 6), (ONNX, 0)]


def test_torch_alone_names_no_onnxruntime(model):
    measured = measure_latency(model, [Setting(0.5)], QUICK)
    assert measured.onnxruntime is None
    assert measured.on(TORCH) == measured


def test_a_report_from_before_there_were_backends_is_read(report):
    values = json.loads(json.dumps(report.to_json()))
    del values["latency"]["onnxruntime"]
    for row in values["latency"]["rows"]:
        del row["backend"]
    assert Report.from_json(values) == report


# The command line


def printed(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predict_on_a_backend(checkpoint_folder, classifier, capsys, tmp_path):
    text = "hat? tom:hat mia:key"
    row = printed(capsys, "predict", checkpoint_folder, "--text", text, "--budget", "0.5", "--backend", ONNX)["rows"][0]
    assert row["backend"] == ONNX
    assert row["probability"] == pytest.approx(classifier.predict([text], 0.5)[0].probability, abs=1e-5)
    (tmp_path / "in.csv").write_text(f"text\n{text}\nkey? leo:key\n")
    files = ["--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv"]
    printed(capsys, "predict", checkpoint_folder, *files, "--backend", INT8)
    expected = classifier.on(INT8).predict([text, "key? leo:key"])
    assert list(pd.read_csv(tmp_path / "out.csv")["label"]) == [answer.label for answer in expected]


def test_evaluate_and_bench_name_the_backend(checkpoint_folder, capsys):
    answer = printed(capsys, "evaluate", checkpoint_folder, "--limit", 40, "--budgets", "0.5", "--backend", INT8)
    assert (answer["backend"], answer["n"], len(answer["rows"])) == (INT8, 40, 1)
    asked = ["--budgets", "0.5", "--rounds", 1, "--length", 8, "--backend", "torch, onnx-int8"]
    rows = printed(capsys, "bench", checkpoint_folder, *asked)["rows"]
    assert [row["backend"] for row in rows] == [TORCH] * 3 + [INT8] * 3


@pytest.mark.parametrize("command", ["predict", "evaluate", "bench"])
def test_an_unknown_backend_is_one_sentence(checkpoint_folder, capsys, command):
    given = ["--text", "hat?"] if command == "predict" else []
    assert main([command, str(checkpoint_folder), *given, "--backend", "onnx-int4"]) == 1
    assert capsys.readouterr().err == "There is no backend 'onnx-int4': choose torch, onnx or onnx-int8.\n"


# The app


@pytest.fixture
def app(checkpoint_folder, monkeypatch):
    """Return a function that opens a page of the app with an address's parameters; it must raise nothing."""
    monkeypatch.setenv("BBA_CHECKPOINTS", str(checkpoint_folder.parent))

    def opened(page, **params):
        at = AppTest.from_file(APP, default_timeout=60).switch_page(page)
        for name, value in params.items():
            at.query_params[name] = value
        return ran(at.run())

    return opened


def ran(at):
    assert not at.exception, at.exception[0].message
    return at


def words(at):
    return " ".join(element.value for kind in ("markdown", "caption") for element in at.get(kind))


def control(at, key):
    return next(group for group in at.get("button_group") if group.key == key)


TEXT = "hat? tom:hat mia:hat zoe:hat leo:hat"


def test_classify_runs_in_torch_unless_asked(app):
    at = app("pages/explore/classify.py", text=TEXT)
    assert control(at, "backend").value == TORCH
    assert "ONNX" not in words(at)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_a_link_sets_the_backend_and_the_page_compares_with_torch(app, classifier, backend):
    at = app("pages/explore/classify.py", text=TEXT, budget="0.5", backend=NAMES[backend])
    here, own = (classifier.on(name).predict([TEXT], 0.5)[0] for name in (backend, TORCH))
    assert f"### {here.label}\nprobability {here.probability:.2f}" in words(at)
    assert f"says **{own.label}**, with probability {own.probability:.4f}" in words(at)
    assert ("answers differ a little" in words(at)) is (backend == INT8)
    assert "These curves are the model's in torch" in words(at)


def test_the_latency_page_measures_the_backends_beside_torch(app):
    at = app("pages/measure/latency.py", also=["ONNX", "ONNX int8"])
    assert "int8 answers differ" not in words(at)  # Nothing of them is stored with the checkpoint.
    ran(at.button(key="measure").click().run())
    table = at.dataframe[0].value
    assert list(table["backend"].unique()) == list(BACKENDS)
    assert len(table) % 3 == 0
    assert table[table["backend"] == TORCH]["accuracy"].notna().all()
    assert table[table["backend"] != TORCH]["accuracy"].isna().all()
    assert "int8 answers differ a little" in words(at)
    assert "onnxruntime" in words(at)
