import pandas as pd
import pytest

from bba.data import inspection
from bba.data.inspection import glance, inspect
from bba.data.tables import read_table, sample_rows
from bba.errors import DataError


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content.encode(encoding))
        return path

    return write_file


def rows(counts):
    return [(f"text {label} {i}", label) for label, count in counts.items() for i in range(count)]


def csv_of(pairs):
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in pairs)


@pytest.mark.parametrize(
    ("encoding", "delimiter", "expected"),
    [("utf-8", ",", "utf-8"), ("utf-8-sig", ";", "utf-8-sig"), ("utf-16", "\t", "utf-16"), ("cp1252", "|", "cp1252")],
)
def test_a_glance_tells_how_the_file_is_written(write, encoding, delimiter, expected):
    path = write(f"label{delimiter}text\na{delimiter}Café\n", encoding=encoding)
    seen = glance(path)
    assert (seen.format.kind, seen.format.encoding, seen.format.delimiter) == ("csv", expected, delimiter)
    assert (seen.text_column, seen.label_column) == ("text", "label")
    assert seen.preview["text"].tolist() == ["Café"]
    assert seen.preview.index.tolist() == [1]


def test_columns_without_usual_names_are_guessed_from_what_is_in_them(write):
    path = write("nr,what,words\n1,x,a long story\n2,y,another long story\n3,x,short\n")
    assert (glance(path).text_column, glance(path).label_column) == ("words", "what")


def test_a_single_column_has_no_labels(write):
    assert glance(write("text\na\n")).label_column is None


def test_a_column_named_twice_and_a_file_too_large_are_refused(write, monkeypatch):
    with pytest.raises(DataError, match="names the column 'a' more than once"):
        glance(write("a,a\n1,2\n"))
    monkeypatch.setattr(inspection, "MAX_BYTES", 4)
    with pytest.raises(DataError, match="give at most 0 MB"):
        glance(write("text,label\na,b\n"))


def test_a_good_file_has_counts_and_splits_and_no_problem(write):
    found = inspect(write(csv_of(rows({"a": 20, "b": 30}))), "text", "label")
    assert found.counts == {"b": 30, "a": 20}
    assert found.splits == {"train": 40, "validation": 5, "test": 5}
    assert (found.rows, found.problems, found.error) == (50, (), None)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([("", "a")], "the text is empty: row 41"),
        ([("same", "a"), ("same", "b")], "different labels, so some of them must be wrong: rows 41, 42"),
        ([("same", "a"), ("same", "a")], "Copies of an earlier row, .*: row 42"),
        ([("x", "A "), ("y", "A"), ("z", "A")], "spelt in several ways, and count as different: 'A', 'a'"),
        ([("x", "c"), ("y", "c")], "Too few rows for validation and test, so used for training only: 'c'"),
    ],
)
def test_each_problem_is_told_with_its_rows(write, pairs, sentence):
    found = inspect(write(csv_of(rows({"a": 20, "b": 20}) + pairs)), "text", "label")
    assert len(found.problems) == 1
    assert pd.Series(found.problems).str.contains(sentence).all()
    assert found.error is None


def test_a_lopsided_file_is_told(write):
    (problem,) = inspect(write(csv_of(rows({"a": 95, "b": 5}))), "text", "label").problems
    assert problem.startswith("95.0% of the rows have the label 'a'")


def test_a_missing_header_is_suspected(write):
    pairs = rows({"a": 20, "b": 20})
    (problem,) = inspect(write("".join(f"{text},{label}\n" for text, label in pairs)), "text a 0", "a").problems
    assert problem.startswith("The first row was read as the names of the columns, but 'a' is a label")


def test_a_file_that_cannot_be_trained_on_still_shows_its_counts(write):
    found = inspect(write(csv_of(rows({"a": 9}))), "text", "label")
    assert found.counts == {"a": 9}
    assert "has the same label 'a'" in found.error
    assert found.splits == {}


def test_a_sample_keeps_proportions_order_and_rare_labels(write):
    frame = read_table(write(csv_of(rows({"a": 800, "b": 200, "c": 12})))).frame
    some = sample_rows(frame, 100, seed=0)
    assert some["label"].value_counts().to_dict() == {"a": 79, "b": 20, "c": 10}
    assert some.index.is_monotonic_increasing
    assert some.equals(sample_rows(frame, 100, seed=0))
