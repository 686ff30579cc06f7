import io
import json
import shutil
import zipfile

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from visiting import APP, ran, words

from bba import jobs
from bba.predict import BudgetedClassifier
from bba.training.speed import Speed
from bba.ui import own_result, own_training, state, uploads

PAGE, FILES = "pages/build/your_data.py", "pages/explore/files.py"
VISITOR = "0123456789abcdef" * 2
SPEED = Speed(start=10, dense=0.1, soft=0.2, hard=0.1, answer=0.001, answers=0.02, latency=0.5)
GOOD = "review;verdict\n" + "".join(f"nice {i};pos\nbad {i};neg\n" for i in range(30))


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    """Keep clear of what else runs on this machine, and start no training."""
    (tmp_path / "place").mkdir()
    monkeypatch.setattr(jobs, "PLACE", tmp_path / "place" / "training")
    monkeypatch.setattr(own_training, "_available", lambda: ["word"])
    monkeypatch.setattr(
        jobs, "measured_speed", lambda *_: (SPEED, {"train": 48, "validation": 6, "test": 6}), raising=True
    )
    monkeypatch.delenv("BBA_TRAINING", raising=False)


@pytest.fixture
def root(checkpoint_folder, tmp_path, monkeypatch):
    root = tmp_path / "checkpoints"
    monkeypatch.setenv("BBA_CHECKPOINTS", str(root))
    shutil.copytree(checkpoint_folder, root / "tiny")
    return root


def opened(page=PAGE, visitor=VISITOR):
    at = AppTest.from_file(APP, default_timeout=120).switch_page(page)
    at.session_state["visitor"] = visitor
    return ran(at.run())


def given(at, content, name="my *data*.csv", key="own_file"):
    content = content if isinstance(content, bytes) else content.encode()
    return ran(at.file_uploader(key=key).set_value((name, content, "text/csv")).run())


def pretend_job(root, name, owner=VISITOR, **files):
    folder = root / ".jobs" / name
    folder.mkdir(parents=True)
    seconds = {"start": 1.0, "dense": 1.0, "soft": 1.0, "hard": 1.0, "measuring": 1.0}
    told = {"file": "a.csv", "seconds": seconds, "owner": owner}
    (folder / "request.json").write_text(json.dumps(told))
    for file, content in {"log.txt": "", **files}.items():
        (folder / file).write_text(content)


def test_a_file_is_shown_with_its_columns_and_can_be_trained_on(root, monkeypatch):
    started = []
    monkeypatch.setattr(jobs, "start", lambda *given: started.append(given) or jobs.Job(root, "none"))
    at = given(opened(), GOOD)
    assert "CSV, UTF-8, columns separated by semicolon, 2 columns" in words(at)
    assert "60 rows" in words(at)
    assert [box.value for box in at.selectbox] == ["review", "verdict"]
    ran(at.button(key="own_time").click().run())
    assert "Expected time" in words(at)
    ran(at.text_input(key="own_name").set_value("mine").run())
    at.button(key="own_train").click().run()
    ((where, request, examples),) = started
    assert (where, request.name, request.file) == (root, "mine", "my *data*.csv")
    assert examples["label"].value_counts().to_dict() == {"pos": 30, "neg": 30}


def test_more_minutes_buy_more_steps(root):
    at = given(opened(), GOOD)
    ran(at.button(key="own_time").click().run())
    ran(at.select_slider(key="own_minutes").set_value(1).run())
    few = words(at)
    assert "With more minutes" in few
    ran(at.select_slider(key="own_minutes").set_value(30).run())
    assert "more minutes would not help" in words(at)
    assert words(at) != few


@pytest.mark.parametrize("name", ["../up", "tiny", "a b", ""])
def test_a_bad_name_gets_its_sentence_and_nothing_is_written(root, name):
    at = given(opened(), GOOD)
    ran(at.button(key="own_time").click().run())
    ran(at.text_input(key="own_name").set_value(name).run())
    ran(at.button(key="own_train").click().run())
    assert len(at.error) == 1
    assert [path.name for path in root.iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        (b"PK\x03\x04" + bytes(range(256)) * 9, "is not a text file"),
        ("text,label\na,b,c\n", "Line 2 of"),
        ("text,label\n" + "a,x\n" * 9, "has the same label"),
        ("text,label\na,x\nb,x\nc,y\n", "only one row for"),
        ("text\na\nb\n", "single column"),
    ],
)
def test_a_bad_file_gets_one_sentence_in_the_apps_words(root, content, sentence):
    at = given(opened(), content)
    (error,) = at.error
    shown = error.value.replace("\\", "")
    assert sentence in shown
    assert "upload.csv" not in shown
    assert "--" not in shown
    assert not any(button.key == "own_train" for button in at.button)


def test_uploads_leave_nothing_on_the_disk(root, monkeypatch, tmp_path):
    monkeypatch.setattr(uploads.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    given(opened(), GOOD)
    assert list((tmp_path / "temporary").glob("bba-upload-*")) == []


def test_training_can_be_switched_off(root, monkeypatch):
    monkeypatch.setenv("BBA_TRAINING", "off")
    at = opened()
    assert "switched off on this server" in words(at)
    assert not at.file_uploader


def test_the_page_works_without_any_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("BBA_CHECKPOINTS", str(tmp_path / "none"))
    assert "60 rows" in words(given(opened(), GOOD))


def test_a_stopped_and_a_failed_training_can_go_on_or_go(root):
    pretend_job(root, "halted", stopped="")
    at = opened()
    assert "was stopped at 0%" in words(at).replace("\\", "")
    assert at.button(key="own_resume")
    ran(at.button(key="own_discard").click().run())
    assert list((root / ".jobs").iterdir()) == []
    pretend_job(root, "broken", **{"ended.json": '{"status": 1}', "log.txt": "The loss is <b>bad</b>.\n"})
    assert "<b>bad</b>" in words(opened()).replace("\\", "")


def test_a_training_is_its_owners(root, monkeypatch):
    pretend_job(root, "secret", stopped="")
    monkeypatch.setattr(jobs, "running", lambda: jobs.Job(root, "secret"))
    at = opened(visitor="f" * 32)
    assert "Somebody else's training is running" in words(at).replace("\\", "")
    assert "secret" not in words(at)
    assert "a.csv" not in words(at)
    assert not at.button


def test_a_finished_training_shows_its_accuracy_and_opens_in_the_app(root, report):
    pretend_job(root, "tiny", **{"result.json": "{}"})
    at = opened()
    assert f"{100 * report.row(0.5).accuracy:.1f} %" in words(at)
    ran(at.select_slider(key="own_setting_tiny").set_value("0.05").run())
    assert f"{100 * report.row(0.05).accuracy:.1f} %" in words(at)


def test_the_model_comes_as_a_zip(root, tmp_path):
    choice = state.choose(root / "tiny")
    with zipfile.ZipFile(io.BytesIO(own_result.pruned_zip(choice))) as archive:
        archive.extractall(tmp_path / "out")
    smaller = BudgetedClassifier.from_pretrained(tmp_path / "out" / "tiny-0.5")
    text = ["hat? tom:hat mia:hat"]
    expected = choice.classifier.predict(text, 0.5)[0]
    assert smaller.predict(text)[0].probabilities == pytest.approx(expected.probabilities)
    with zipfile.ZipFile(io.BytesIO(own_result.onnx_zip(choice))) as archive:
        assert sorted(archive.namelist()) == ["tiny.onnx", "tiny.tokenizer.json"]


def test_a_file_is_classified_row_by_row(root):
    at = given(opened(FILES), "id,text\n7,hat? tom:hat\n8,\n", key="rows_file")
    ran(at.button(key="rows_start").click().run())
    assert "2 rows classified; 1 of them have no text" in words(at)
    shown = at.dataframe[-1].value
    assert shown["id"].tolist() == ["7", "8"]
    expected = state.choose(root / "tiny").classifier.predict(["hat? tom:hat"], 0.5)[0]
    assert shown["label"].tolist() == [expected.label, ""]
    assert pd.Series(shown["budget"]).tolist() == ["0.5", ""]


def test_each_row_of_a_file_may_have_a_budget_of_its_own(root, routed_folder):
    assert not any(toggle.key == "rows_auto" for toggle in given(opened(FILES), "text\nhat?\n", key="rows_file").toggle)
    shutil.rmtree(root / "tiny")
    shutil.copytree(routed_folder, root / "routed")
    texts = ["hat? tom:hat", "hat? mia:hat tom:bag"]
    at = given(opened(FILES), "\n".join(["text", *texts, ""]), key="rows_file")
    ran(at.toggle(key="rows_auto").set_value(True).run())
    ran(at.button(key="rows_start").click().run())
    shown = at.dataframe[-1].value
    assert list(shown)[:4] == ["label", "probability", "budget", "encoder_cost"]
    expected = state.choose(root / "routed").classifier.predict(texts, "auto")
    assert shown["budget"].tolist() == [str(answer.budget) for answer in expected]
