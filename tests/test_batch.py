import weakref

import pandas as pd
import pytest

from bba import batch
from bba.batch import classify_file
from bba.data.tables import iter_batches
from bba.errors import DataError
from bba.predict import Asked


@pytest.fixture
def source(tmp_path):
    """Return a file of 2 500 rows, more than are read at a time, one of them blank."""
    texts = [f"hat? tom:hat {i % 7}" for i in range(2_500)]
    texts[1_500] = " "
    path = tmp_path / "in.csv"
    pd.DataFrame({"id": range(2_500), "text": texts}).to_csv(path, index=False)
    return path


def test_rows_come_back_in_their_order_and_progress_ends_at_one(classifier, source, tmp_path):
    heard = []
    counts = classify_file(classifier, source, tmp_path / "out.csv", Asked(0.5), progress=heard.append)
    out = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert counts == (2_500, 1)
    assert out["id"].tolist() == [str(i) for i in range(2_500)]
    assert list(out) == ["id", "text", "label", "probability", "budget"]
    assert out["label"][1_500] == ""
    assert out["label"][1_501] == classifier.predict([out["text"][1_501]], 0.5)[0].label
    assert heard == sorted(heard)
    assert len(heard) == 3
    assert heard[-1] == 1


def test_only_the_rows_at_work_are_in_hand(classifier, source, tmp_path, monkeypatch):
    seen, alive = [], []

    def watched(path):
        for rows in iter_batches(path, 100):
            seen.append(weakref.ref(rows))
            yield rows

    monkeypatch.setattr(batch, "iter_batches", watched)

    def look(done):
        alive.append(sum(rows() is not None for rows in seen))

    classify_file(classifier, source, tmp_path / "out.csv", Asked(0.1), progress=look)
    assert len(seen) == 2 * len(alive) >= 50  # Counted, then classified.
    assert max(alive) <= 2  # Those at work, and those before them.


def test_a_file_broken_at_its_end_is_refused_before_any_work(classifier, source, tmp_path, monkeypatch):
    with source.open("a") as file:
        file.write("1,2,3\n")
    monkeypatch.setattr(type(classifier), "predict", None)
    with pytest.raises(DataError, match="has 3 values"):
        classify_file(classifier, source, tmp_path / "out.csv", Asked(0.5))
    assert not (tmp_path / "out.csv").exists()


def test_stopping_leaves_nothing(classifier, source, tmp_path):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classify_file(classifier, source, tmp_path / "out.csv", Asked(0.5), progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_line_breaks_of_any_kind_stay_in_their_cell(classifier, tmp_path):
    texts = ["hat? tom:hat\rx", "a\nb", "c\r\nd", 'e "f", g']
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "in.parquet")
    classify_file(classifier, tmp_path / "in.parquet", tmp_path / "out.csv", Asked(0.5))
    read = pd.concat(iter_batches(tmp_path / "out.csv"))
    assert read["text"].tolist() == texts
