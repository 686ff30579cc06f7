import json
import os
import random
from collections import Counter
from pathlib import Path

import datasets
import pandas as pd
import pytest

from bba.data.sources import TASKS, Split, load_labelled_file, load_split, load_task
from bba.data.tables import find_text_column, iter_batches, read_table
from bba.errors import DataError

GOOD = "text,label\ngood film,pos\nbad film,neg\n"


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write_file


def rows_of(path, **options):
    frame = read_table(path, **options).frame
    return list(zip(frame["text"], frame["label"], strict=True))


def make_csv(counts):
    lines = [f"text {label} {i},{label}" for label, count in counts.items() for i in range(count)]
    random.Random(0).shuffle(lines)
    return "\n".join(["text,label", *lines]) + "\n"


# Reading what is well meant


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_every_encoding_gives_the_same_rows(write, encoding):
    path = write("text,label\n“Café” is naïve,über\nplain,b\n", encoding=encoding)
    assert rows_of(path) == [("“Café” is naïve", "über"), ("plain", "b")]


def test_windows_1252_is_found_far_behind_the_first_bytes(write):
    path = write("text,label\n" + "plain text,a\n" * 200_000 + "café,b\n", encoding="cp1252")
    assert rows_of(path)[-1] == ("café", "b")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_every_delimiter_is_found(write, delimiter):
    path = write(f'label{delimiter}text\na{delimiter}"one, two; three | four\tfive"\n')
    assert rows_of(path) == [("one, two; three | four\tfive", "a")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotes_line_breaks_and_line_ends(write, end):
    path = write(f'text,label{end}"she said ""no"",\nand left",a{end}{end}x,b{end}')
    assert rows_of(path) == [('she said "no",\nand left', "a"), ("x", "b")]


def test_words_for_missing_values_are_words(write):
    words = ["NA", "null", "NaN", "None", "007", "1e5", "True"]
    path = write("text,label\n" + "".join(f"{word},{word}\n" for word in words))
    assert rows_of(path) == [(word, word) for word in words]


def test_nul_goes_and_everything_else_stays(write):
    path = write("text,label\n  a\0b <b>$x^2$</b> 🙂 שלום  ,  pos \n")
    assert rows_of(path) == [("  ab <b>$x^2$</b> 🙂 שלום  ", "pos")]


def test_a_text_of_a_million_letters(write):
    assert rows_of(write(f"text,label\n{'a' * 1_000_000},x\n"))[0][0] == "a" * 1_000_000


def test_json_lines(write):
    lines = [{"text": "a\nb\0\ud800", "label": 1, "id": None}, {"label": 2.0, "text": "c"}, {"text": "d", "label": "x"}]
    path = write("\n".join(json.dumps(line) for line in lines) + "\n\n", "data.jsonl")
    assert rows_of(path) == [("a\nb?", "1"), ("c", "2"), ("d", "x")]
    assert rows_of(write(path.read_bytes(), "data.txt")) == rows_of(path)


def test_parquet(write, tmp_path):
    frame = pd.DataFrame({"Review": ["a", None, "c"], "stars": [1.0, 2.0, 3.0]})
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.frame["text"].tolist() == ["a", "c"]
    assert table.frame["label"].tolist() == ["1", "3"]
    assert table.problems == ("Left out of data.parquet, as the text is empty: row 2.",)


def test_labels_are_names(write):
    path = write("text,label\na,1.0\nb,5\nc,-2.0\nd,1.5\ne,007\n")
    assert [label for _, label in rows_of(path)] == ["1", "5", "-2", "1.5", "007"]


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ("text,label", {}, ("1", "2")),
        ("Label, TEXT ", {}, ("2", "1")),
        ("Category,whatever", {}, ("2", "1")),
        ("review,stars", {}, ("1", "2")),
        ("stars,headline", {"text_column": "stars", "label_column": "Headline"}, ("1", "2")),
        ("label,text", {"text_column": "label", "label_column": "text"}, ("1", "2")),
        ("title,label", {"label_column": "title", "text_column": "label"}, ("2", "1")),
    ],
)
def test_columns_are_found(write, header, options, expected):
    assert rows_of(write(f"{header}\n1,2\n"), **options) == [expected]


def test_labels_may_be_absent_where_they_are_not_needed(write):
    assert list(read_table(write("id,text\n1,a\n"), need_labels=False).frame) == ["text"]
    assert list(read_table(write("class,text\n1,a\n"), need_labels=False).frame) == ["text", "label"]
    assert len(read_table(write("class,text\n,a\n"), need_labels=False).frame) == 1


def test_one_column_may_hold_commas_and_blank_lines(write):
    path = write('text\nHello, world\n\n"quoted ""x"""\n')
    assert [row for batch in iter_batches(path) for row in batch["text"]] == ["Hello, world", "", 'quoted "x"']


def test_rows_without_text_or_label_are_left_out_and_told(write):
    path = write("text,label\na,x\n   ,y\nb,\nc\n" + ",z\n" * 6)
    table = read_table(path)
    assert table.frame["text"].tolist() == ["a"]
    assert table.frame.index.tolist() == [1]
    assert table.problems == (
        "Left out of data.csv, as the text is empty: rows 2, 5, 6, 7, 8 and 2 more.",
        "Left out of data.csv, as the label is empty: rows 3, 4.",
    )


# Streaming


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_stream_is_the_whole_file(tmp_path, kind, rows):
    frame = pd.DataFrame(
        {"id": ["1", "2", "NA", "4", ""], "text": ["a,b", "", 'c "d"\ne', "ü\t", "x"], "extra": list("vwxyz")}
    )
    path = tmp_path / f"data.{kind}"
    save = {
        "csv": lambda: frame.to_csv(path, index=False),
        "tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
    }
    save[kind]()
    batches = list(iter_batches(path, rows))
    assert all(0 < len(batch) <= rows for batch in batches)
    whole = pd.concat(batches)
    assert whole.index.tolist() == [1, 2, 3, 4, 5]
    pd.testing.assert_frame_equal(whole.reset_index(drop=True), frame, check_dtype=False)
    assert find_text_column(path) == "text"


def test_json_objects_may_differ_in_their_names(write):
    path = write('{"text": "a"}\n{"text": "b", "id": 7}\n', "data.jsonl")
    assert [batch.values.tolist() for batch in iter_batches(path, 1)] == [[["a", ""]], [["b", "7"]]]


def test_a_stream_is_read_as_it_is_asked_for(write):
    path = write("text,label\n" + "a,b\n" * 200_000 + "a,b,c\n")
    batches = iter_batches(path, 1000)
    assert len(next(batches)) == 999
    with pytest.raises(DataError, match="Line 200002"):
        list(batches)


def test_text_column_is_named_as_the_file_names_it(write):
    assert find_text_column(write("Nr;Review \n1;a\n")) == "Review "
    assert find_text_column(write("a,b\n1,2\n"), "B") == "b"


# Reading what cannot be read: one sentence each


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty: it needs a header with a text column"),
        (" \n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("text,label\n", "has column names but no rows: add at least one row"),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\xff\xfe",
            "is not a text file that can be read: save it as CSV in UTF-8",
        ),
        (b"PK\x03\x04\x14\0\x06\0\x08\0" + bytes(range(256)) * 9, "is not a text file"),
        (b"text,label\na\x81b,c\n", "is not a text file"),
        ("text,label\na,b\n".encode("utf-16-le"), "is not a text file"),
        (b"\xff\xfet\0e\0\x00\xd8", "is not a text file"),
        ("text,label\na,b\nc,d,e\n", r"Line 3 of .*data.csv has 3 values where the header has 2 .*double quotes"),
        ("text,label\na,b,c\nc,d,e\n", "Line 2 of .* has 3 values where the header has 2"),
        ('text,label\na,b\n"c,d\n', "has a double quote that is never closed, from row 2 on"),
        (
            "a,b,c\n1,2,3\n",
            r"has no text column: its first row names 'a', 'b', 'c' and none is called text, .*--text-column",
        ),
        ("text,b,c\n1,2,3\n", r"has no label column: its first row names 'text', 'b', 'c' .*--label-column"),
        ("text\n1\n", "has no label column"),
        ("text,label,text\n1,2,3\n", "names the column 'text' more than once"),
        (
            "text,label\n,a\n ,b\n",
            "The text column of .* is empty in every row: fill it, or name another .*--text-column",
        ),
        ("text,label\na,\n", "The label column of .* is empty in every row"),
        ('{"text": "a", "label": 1}\n{"text"\n', "Line 2 of .* is not a JSON object: write one object a line"),
        (b"PAR1 and then nothing of the kind", "is not a whole Parquet file"),
    ],
)
def test_a_broken_file_gets_its_sentence(write, content, sentence):
    path = write(content)
    with pytest.raises(DataError, match=sentence) as raised:
        read_table(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"text_column": "body"},
            "has no text column 'body': its first row names 'text', 'label'; name .* --text-column",
        ),
        ({"label_column": "body"}, "has no label column 'body': .* --label-column"),
        ({"label_column": "text", "text_column": "text"}, "has no label column 'text'"),
    ],
)
def test_a_column_that_is_not_there(write, options, sentence):
    with pytest.raises(DataError, match=sentence):
        read_table(write(GOOD), **options)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(DataError, match=r"There is no file .*nope.csv: check the path"):
        read_table(tmp_path / "nope.csv")
    with pytest.raises(DataError, match=r"is a folder: give the CSV, TSV, JSONL or Parquet file itself"):
        read_table(tmp_path)


def test_a_list_of_columns_stays_short(write):
    path = write(",".join(["x" * 500, *(f"c{i}" for i in range(300))]) + "\n" + "," * 300 + "\n")
    with pytest.raises(DataError, match="and 291 more") as raised:
        read_table(path)
    assert len(str(raised.value)) < 600


# Own files as tasks


def test_own_file_is_split_by_class_and_seed(write):
    path = str(write(make_csv({"pos": 95, "neg": 50, "rare": 5})))
    data = load_task(path, seed=3)
    assert data.label_names == ("neg", "pos", "rare")
    assert Counter(data.test.labels) == Counter(data.validation.labels) == {0: 5, 1: 10, 2: 1}
    texts = data.train.texts + data.validation.texts + data.test.texts
    assert len(set(texts)) == len(texts) == 150
    assert data == load_task(path, seed=3)
    assert data.test != load_task(path, seed=4).test
    assert load_split(path, "validation", seed=3) == (data.validation, data.label_names)
    for split in (data.train, data.validation, data.test):
        assert all(
            text.split()[1] == data.label_names[label] for text, label in zip(split.texts, split.labels, strict=True)
        )


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        (["2.0", "10.0", "1.0"], ("1", "2", "10")),
        (["1.5", "-1", "10"], ("-1", "1.5", "10")),
        (["b", "10", "9"], ("10", "9", "b")),
        (["NaN", "1", "inf"], ("1", "NaN", "inf")),
    ],
)
def test_class_order(write, labels, names):
    assert load_task(str(write(make_csv(dict.fromkeys(labels, 4))))).label_names == names


def test_a_class_too_small_for_three_splits_is_trained_on_and_told(write):
    data = load_task(str(write(make_csv({"a": 20, "b": 2}))))
    assert data.train.labels.count(1) == 2
    assert data.problems == ("Too few rows for validation and test, so used for training only: 'b'.",)


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({"a": 30}, "Every row of .* has the same label 'a': a classifier needs at least two classes"),
        ({"a": 30, "b": 1}, r"has only one row for 'b' \(row \d+\): a class needs at least two"),
        ({"a": 2, "b": 2}, "has too few rows to train and test on: give at least 3 for a class"),
    ],
)
def test_a_file_that_cannot_be_trained_on(write, counts, sentence):
    with pytest.raises(DataError, match=sentence):
        load_task(str(write(make_csv(counts))))


def test_an_unknown_task_and_split(write):
    with pytest.raises(DataError, match="There is no task 'agnws': give synthetic, agnews, dbpedia14, or the path"):
        load_task("agnws")
    with pytest.raises(DataError, match=r"There is no file agnws\.csv"):
        load_task("agnws.csv")
    with pytest.raises(DataError, match="There is no split 'dev': choose train, validation or test"):
        load_split("agnews", "dev")


@pytest.mark.parametrize(("first", "second"), [("neg", "pos"), ("0", "1"), ("0.0", "1.0")])
def test_labels_of_a_file_are_names_or_positions(write, first, second):
    split, problems = load_labelled_file(write(f"text,label\na,{second}\nb,{first}\n"), ("neg", "pos"))
    assert split == Split(["a", "b"], [1, 0])
    assert problems == ()


def test_names_that_are_numbers_are_names_first(write):
    assert load_labelled_file(write("text,label\na,1\nb,2\n"), ("1", "2", "3"))[0].labels == [0, 1]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (("pos", "odd"), r"labels that are not among the known classes: 'odd' \(row 2\); write 'neg', 'pos' or 0 to 1"),
        (("1", "2"), r"known classes: '2' \(row 2\)"),
        (("pos", "1"), r"known classes: '1' \(row 2\)"),
    ],
)
def test_labels_only_in_the_test_file(write, labels, sentence):
    with pytest.raises(DataError, match=sentence):
        load_labelled_file(write(f"text,label\na,{labels[0]}\nb,{labels[1]}\n"), ("neg", "pos"))


# Named tasks


@pytest.fixture
def data_dir(write, tmp_path):
    names = TASKS["agnews"].label_names
    write(make_csv(dict.fromkeys(range(4), 40)), "data/agnews/train.csv")
    write(make_csv(dict.fromkeys(range(4), 3)), "data/agnews/test.csv")
    write("\n".join(names) + "\n", "data/agnews/labels.txt")
    return tmp_path / "data"


@pytest.fixture
def no_hub(monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    monkeypatch.delenv("BBA_DATA_DIR", raising=False)


def test_task_from_a_folder(data_dir, monkeypatch, no_hub):
    data = load_task("agnews", data_dir, seed=1, validation_share=0.1)
    assert Counter(data.validation.labels) == dict.fromkeys(range(4), 4)
    assert len(data.train) == 144
    assert data.test.texts == pd.read_csv(data_dir / "agnews/test.csv")["text"].tolist()
    assert not set(data.train.texts) & set(data.validation.texts)
    assert data == load_task("agnews", data_dir / "agnews", seed=1, validation_share=0.1)
    monkeypatch.setenv("BBA_DATA_DIR", str(data_dir))
    assert data == load_task("agnews", seed=1, validation_share=0.1)
    assert load_split("agnews", "train", seed=1)[0] == load_task("agnews", seed=1).train


def test_the_test_split_needs_only_its_file(data_dir, no_hub):
    (data_dir / "agnews/train.csv").unlink()
    split, names = load_split("agnews", "test", data_dir)
    assert len(split) == 12
    assert names == TASKS["agnews"].label_names
    with pytest.raises(DataError, match=r"agnews/train.csv and agnews/test.csv not found in .*data"):
        load_task("agnews", data_dir)


def test_no_folder_and_no_network(no_hub, tmp_path):
    with pytest.raises(
        DataError, match=r"no folder given .* could not be downloaded \(ConnectionError\); .*--data or BBA"
    ):
        load_task("agnews")
    with pytest.raises(DataError, match=r"not found in .*, and fancyzhx/dbpedia_14 could not be downloaded"):
        load_task("dbpedia14", tmp_path)


def test_the_folder_of_another_task(data_dir, no_hub):
    with pytest.raises(DataError, match=r"labels.txt does not list the labels of dbpedia14 \(Company, "):
        load_task("dbpedia14", data_dir / "agnews")


def test_task_from_the_hub(monkeypatch, no_hub):
    rows = {"title": [f"T{i}" for i in range(28)], "content": [f" c\0{i} " for i in range(28)]}
    part = datasets.Dataset.from_dict({**rows, "label": [i % 14 for i in range(28)]})
    monkeypatch.setattr(datasets, "load_dataset", lambda hub_id, split: [part] * len(split))
    data = load_task("dbpedia14")
    assert len(data.train) == len(data.validation) == 14
    assert data.test.texts[1] == "T1 c1"
    assert data.test.labels[:3] == [0, 1, 2]
    assert data.source == "fancyzhx/dbpedia_14 on the Hugging Face Hub"


@pytest.mark.skipif("BBA_DATA_DIR" not in os.environ, reason="BBA_DATA_DIR names no folder of data sets")
@pytest.mark.parametrize("task", sorted(TASKS))
def test_the_real_task(task):
    if not (Path(os.environ["BBA_DATA_DIR"]) / task / "train.csv").is_file():
        pytest.skip(f"no {task} in the folder")
    data = load_task(task)
    assert set(data.train.labels) == set(data.test.labels) == set(range(len(data.label_names)))
    assert data.problems == ()


# Subsets


def test_a_subset_keeps_the_proportions():
    labels = [0] * 900 + [1] * 90 + [2] * 10
    split = Split([str(i) for i in range(1000)], labels)
    assert Counter(split.subset(100, seed=0).labels) == {0: 90, 1: 9, 2: 1}
    assert split.subset(100, seed=0) == split.subset(100, seed=0) != split.subset(100, seed=1)
    assert split.subset(5000, seed=0) == split
    assert len(split.subset(1, seed=0)) == 1
    part = split.subset(50, seed=2)
    assert [labels[int(text)] for text in part.texts] == part.labels
    with pytest.raises(DataError, match="0 examples are none to work with"):
        split.subset(0, seed=0)
