from collections import Counter

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bba.data.synthetic import (
    FILLERS,
    MAX_LENGTH,
    PEOPLE,
    THINGS,
    examples,
    synthetic_data,
    synthetic_split,
    synthetic_tokenizer,
)


def read(text):
    """Answer a text as a person does: find the question, follow that thing, and say who took it last."""
    words = text.split(" ")
    (question,) = [word for word in words if word.endswith("?")]
    holder = None
    for word in words:
        if word.endswith(":" + question[:-1]):
            holder = word.split(":")[0]
    return holder


def test_labels_are_what_a_reader_says():
    for text, label in examples(3000, "reading"):
        assert PEOPLE[label] == read(text)


def test_every_person_takes_each_of_three_things_once():
    for text, _ in examples(300, "takings"):
        takings = Counter(word for word in text.split() if ":" in word)
        things = {taking.split(":")[1] for taking in takings}
        assert len(things) == 3
        assert takings == Counter({f"{person}:{thing}": 1 for person in PEOPLE for thing in things})


def test_equal_seeds_give_equal_examples_and_others_do_not():
    assert synthetic_split(50, 7) == synthetic_split(50, 7)
    assert synthetic_split(50, 7) != synthetic_split(50, 8)
    assert synthetic_split(20, 7).texts == synthetic_split(50, 7).texts[:20]


def test_splits_share_next_to_nothing():
    train, validation = synthetic_split(5000, "0/train"), synthetic_split(500, "0/validation")
    assert not set(train.texts) & set(validation.texts)


def test_people_are_right_equally_often():
    counts = Counter(synthetic_split(8000, "counts").labels)
    assert set(counts) == {0, 1, 2, 3}
    assert all(count / 8000 == pytest.approx(0.25, abs=0.02) for count in counts.values())


def test_the_question_stands_at_either_end_and_lengths_vary():
    split = synthetic_split(2000, "places").texts
    bare = [[word for word in text.split() if word not in FILLERS] for text in split]
    first = sum(words[0].endswith("?") for words in bare)
    assert sum(words[-1].endswith("?") for words in bare) == 2000 - first
    assert first / 2000 == pytest.approx(0.5, abs=0.04)
    assert len({len(text.split()) for text in split}) == 9


def test_which_words_occur_says_nothing():
    train, test = synthetic_split(6000, "bag/train"), synthetic_split(4000, "bag/test")
    bag = CountVectorizer(token_pattern=r"\S+")
    classifier = LogisticRegression(max_iter=500).fit(bag.fit_transform(train.texts), train.labels)
    assert classifier.score(bag.transform(test.texts), test.labels) == pytest.approx(0.25, abs=0.05)


def test_the_tokenizer_knows_every_word_and_every_text_fits():
    tokenizer = synthetic_tokenizer()
    assert len(tokenizer) == 4 + len(PEOPLE) * len(THINGS) + len(THINGS) + len(FILLERS)
    for text, _ in examples(300, "words"):
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text.split()) + 2 <= MAX_LENGTH
        assert tokenizer.unk_token_id not in ids


def test_the_whole_data_has_its_sizes(monkeypatch):
    from bba.data import synthetic

    asked = []
    monkeypatch.setattr(synthetic, "synthetic_split", lambda count, seed: asked.append((count, seed)))
    synthetic_data(3)
    assert asked == [(60_000, "3/train"), (2_000, "3/validation"), (10_000, "3/test")]
