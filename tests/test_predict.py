import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError, DataError
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier

BUDGETS = [count / 12 for count in range(1, 13)]


@pytest.fixture(scope="module")
def texts():
    return [*synthetic_split(40, "predict").texts, "hat?", "unheard words entirely", "leo:hat"]


def probabilities(predictions):
    return torch.tensor([list(prediction.probabilities.values()) for prediction in predictions])


# What is answered


def test_a_prediction_says_what_was_paid_and_what_was_found(classifier, texts):
    for budget, heads in ((0.5, 6), (0.49, 5), (0.01, 1), (1, 12), (None, 12)):
        for text, prediction in zip(texts, classifier.predict(texts, budget), strict=True):
            assert prediction.text == text
            assert prediction.label in PEOPLE
            assert list(prediction.probabilities) == list(PEOPLE)
            assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert prediction.probability == max(prediction.probabilities.values())
            assert prediction.heads == heads
            assert prediction.cost == heads / 12
            assert prediction.budget == (1 if budget is None else budget)


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0])
def test_answers_are_those_of_the_gated_model(classifier, model, tokenizer, budget):
    for text in synthetic_split(5, "gated").texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            expected = model(ids, head_gates=model.gates.hard(budget)).logits.softmax(dim=-1)
        torch.testing.assert_close(probabilities(classifier.predict([text], budget)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_batch_size_and_order_do_not_change_answers(classifier, texts, batch_size):
    expected = probabilities([classifier.predict([text], 0.5)[0] for text in texts])
    order = random.Random(0).sample(range(len(texts)), len(texts))
    shuffled = classifier.predict([texts[place] for place in order], 0.5, batch_size=batch_size)
    torch.testing.assert_close(probabilities(shuffled), expected[order], rtol=0, atol=1e-5)


def test_no_text_no_answer(classifier):
    assert classifier.predict([], 0.5) == []


def test_budgets_as_text_are_numbers_too(classifier, texts):
    assert classifier.predict(texts[:2], "0.5") == classifier.predict(texts[:2], 0.5)


def test_without_a_budget_a_pruned_classifier_uses_all_it_has(classifier, texts):
    smaller = classifier.prune(0.5)
    assert smaller.at() is smaller.checkpoint.model
    predicted = smaller.predict(texts)
    assert {(prediction.budget, prediction.heads) for prediction in predicted} == {(0.5, 6)}
    torch.testing.assert_close(
        probabilities(predicted), probabilities(classifier.predict(texts, 0.5)), rtol=0, atol=1e-6
    )


def test_a_pruned_classifier_cannot_be_asked_for_more(classifier, texts):
    with pytest.raises(BudgetError, match="was pruned to 6 of 12: ask for less"):
        classifier.prune(0.5).predict(texts, 0.9)


@pytest.mark.parametrize("budget", [0, -1, 1.5, float("nan"), float("inf"), "0,5", "abc"])
def test_what_is_no_budget_is_refused(classifier, budget):
    for ask in (classifier.at, classifier.prune, lambda asked: classifier.predict(["hat?"], asked)):
        with pytest.raises(BudgetError, match="give a number above 0 and up to 1"):
            ask(budget)


def test_opening_budgets_are_where_heads_really_open(classifier):
    opens = classifier.opening_budgets()
    assert [len(layer) for layer in opens] == [4, 4, 4]
    for budget in BUDGETS:
        kept = classifier.at(budget).config.heads
        assert [[head for head in range(4) if layer[head] <= budget] for layer in opens] == kept


def test_opening_budgets_of_a_pruned_classifier_leave_out_what_is_gone(classifier):
    dense, pruned = classifier.opening_budgets(), classifier.prune(0.5).opening_budgets()
    assert pruned == [[budget if budget <= 0.5 else None for budget in layer] for layer in dense]


# Texts of every kind


def test_a_long_text_is_cut_and_this_is_said(classifier):
    short = classifier.predict(["hat? " + "tom:hat " * 10])[0].encoded
    assert len(short.ids) == short.tokens == 13
    long = classifier.predict(["hat? " + "tom:hat " * 10_000])[0].encoded
    assert len(long.ids) == 32
    assert long.tokens == 10_003
    assert long.ids[-1] == short.ids[-1]  # [SEP] stays.
    assert long.ids[:12] == short.ids[:12]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "a b " * 5_000,
        "😀👩‍👩‍👧‍👦🏳️‍🌈",
        "مَن أخذَ الكتابَ؟",
        "谁最后拿走了书",
        "\0tom:hat\0 hat?\0",
        "<script>alert(1)</script> **bold** $x^2$",
        "line\nbreak\ttab\r\n\u2028\u200b.",
        "\ud800 half a pair",
        "[CLS] [SEP] [PAD] [UNK]",
        ".",
    ],
    ids=[
        *("1 MB of one letter", "10 000 words", "emoji", "right to left", "Chinese", "NUL", "markup", "breaks"),
        *("half a surrogate pair", "names of special tokens", "a point"),
    ],
)
def test_every_text_gets_an_answer(classifier, text):
    prediction = classifier.predict([text], 0.5)[0]
    assert prediction.text == text
    assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_nul_is_nothing(classifier):
    clean, dirty = classifier.predict(["tom:hat hat?", "tom:\0hat\0 hat?\0"], 0.5)
    assert dirty.encoded == clean.encoded


def test_words_the_tokenizer_does_not_know_are_counted(classifier):
    shares = [one.unknown for one in classifier.encode(["tom:hat hat?", "tom:hat quux", "quux quux quux"])]
    assert shares == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("blank", ["", " ", "\n\t \r", "\0", " \0 ", "\u00a0", "\u3000"])
def test_a_blank_text_is_refused_by_its_number(classifier, blank):
    with pytest.raises(DataError) as caught:
        classifier.predict(["hat?", blank, "key?"])
    assert str(caught.value) == "Text 2 of 3 is empty: give at least one word to classify."


def test_one_string_is_not_a_list_of_texts(classifier):
    with pytest.raises(DataError, match=r"write predict\(\[text\]\)"):
        classifier.predict("hat? tom:hat")


@pytest.mark.parametrize("texts", [[None], ["hat?", 3], [float("nan")], [["hat?"]]], ids=str)
def test_what_is_no_text_is_refused(classifier, texts):
    with pytest.raises(DataError) as caught:
        classifier.predict(texts)
    assert f"Text {len(texts)} of {len(texts)} is" in str(caught.value)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_holds_at_least_one_text(classifier, batch_size):
    with pytest.raises(DataError, match="batch_size"):
        classifier.predict(["hat?"], batch_size=batch_size)


# Many at a time


def test_threads_at_different_budgets_get_the_answers_of_one_thread(checkpoint_folder, texts):
    expected = {
        budget: BudgetedClassifier.from_pretrained(checkpoint_folder).predict(texts, budget) for budget in BUDGETS
    }
    for _ in range(3):
        fresh = BudgetedClassifier.from_pretrained(checkpoint_folder)
        with ThreadPoolExecutor(8) as pool:
            jobs = [(budget, pool.submit(fresh.predict, texts, budget)) for budget in BUDGETS * 2]
            for budget, job in jobs:
                torch.testing.assert_close(
                    probabilities(job.result()), probabilities(expected[budget]), rtol=0, atol=1e-6
                )


def test_pruned_models_are_kept(checkpoint_folder):
    classifier = BudgetedClassifier.from_pretrained(checkpoint_folder)
    assert classifier.at(0.5) is classifier.at(0.5) is classifier.at(0.55)
    assert BudgetedClassifier.from_pretrained(checkpoint_folder).at(0.5) is not classifier.at(0.5)


def test_predicting_leaves_the_checkpoint_as_it_was(classifier, model, texts):
    classifier.predict(texts, 0.3)
    state = model.state_dict()
    assert all(torch.equal(t, state[name]) for name, t in classifier.checkpoint.model.state_dict().items())
    assert not classifier.at(0.3).training


def test_saving_and_loading_changes_no_answer(classifier, texts, tmp_path):
    classifier.save_pretrained(tmp_path / "again")
    again = BudgetedClassifier.from_pretrained(str(tmp_path / "again"))
    rows = [one.ids for one in classifier.encode(texts)]
    assert torch.equal(logits_of(again.at(0.4), rows), logits_of(classifier.at(0.4), rows))
    assert again.name == "again"
