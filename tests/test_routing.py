import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bba.data.synthetic import synthetic_split
from bba.errors import BudgetError, CheckpointError
from bba.measure.answers import answers_of
from bba.measure.calibration import calibration_error, confidences, fit_temperature
from bba.measure.card import model_card
from bba.measure.ladder import Rung
from bba.measure.ladder_choice import TARGETS, find_routing
from bba.measure.metrics import GRID, score_budgets
from bba.measure.report import Report
from bba.model import Setting
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier
from bba.pruning.cost import encoder_share
from bba.pruning.surgery import prune_to
from bba.routing import climb
from bba.training.stages import encode

SETTINGS = [GRID[4], GRID[9], GRID[19]]


@pytest.fixture(scope="module")
def splits(tokenizer):
    return {name: encode(synthetic_split(200, f"routing/{name}"), tokenizer) for name in ("validation", "test")}


@pytest.fixture(scope="module")
def answers(model, splits):
    return {name: answers_of(model, split["input_ids"], split["labels"], SETTINGS) for name, split in splits.items()}


@pytest.fixture(scope="module")
def routing(answers):
    return find_routing(answers["validation"], answers["test"])


@pytest.fixture(scope="module")
def three(answers, model):
    """Return a ladder on which texts stay on every rung, and a function that gives its models."""
    thresholds = [
        float(np.quantile(confidences(logits, 1.0), 0.6).round(4) + 0.00005) for logits in answers["validation"].logits
    ]
    ladder = [
        Rung(*setting, 1.0, threshold) for setting, threshold in zip(SETTINGS, [*thresholds[:2], 0.0], strict=True)
    ]
    pruned = {setting: prune_to(model, *setting).eval() for setting in SETTINGS}
    return ladder, lambda *setting: pruned[Setting(*setting)]


def test_temperature_undoes_a_scale_that_logits_were_multiplied_with():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 3))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = [int(generator.choice(3, p=row)) for row in chances]
    assert fit_temperature(logits, labels) == pytest.approx(1, abs=0.1)
    assert fit_temperature(5 * logits, labels) == pytest.approx(5 * fit_temperature(logits, labels), rel=1e-3)


def test_calibration_error_is_the_gap_between_confidence_and_accuracy():
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.5, 0.5])
    right = np.array([True, True, True, False, True, False])
    assert calibration_error(confidence, right) == pytest.approx(4 / 6 * 0.15)
    assert calibration_error(np.ones(3), np.ones(3, dtype=bool)) == 0


def test_answers_are_those_of_pruned_models(model, splits, answers):
    rows, labels = splits["test"]["input_ids"], splits["test"]["labels"]
    for place, setting in enumerate(SETTINGS):
        expected = logits_of(prune_to(model, *setting).eval(), rows).numpy()
        np.testing.assert_array_equal(answers["test"].logits[place], expected)
    accuracies = [row.accuracy for row in score_budgets(model, rows, labels, SETTINGS)]
    np.testing.assert_allclose(answers["test"].right.mean(axis=1), accuracies)


def test_texts_climb_while_the_model_is_unsure(three, splits):
    ladder, at = three
    rows = splits["test"]["input_ids"]
    done = climb(at, rows, ladder)
    assert set(done.rungs) == {0, 1, 2}
    for row, (last, tried, cost) in enumerate(zip(done.rungs, done.tried, done.costs, strict=True)):
        assert len(tried) == last + 1
        assert all(float(step.max()) < ladder[number].threshold for number, step in enumerate(tried[:-1]))
        assert float(tried[-1].max()) >= ladder[last].threshold - 1e-4
        expected = logits_of(at(*ladder[last].setting), [rows[row]]).softmax(dim=-1)[0]
        torch.testing.assert_close(done.probabilities[row], expected, atol=1e-5, rtol=0)
        shares = [encoder_share(at(*rung.setting).config, len(rows[row])) for rung in ladder[: last + 1]]
        assert cost == pytest.approx(sum(shares))


def test_neither_batch_nor_order_nor_padding_changes_a_texts_budget(three, splits):
    ladder, at = three
    rows = splits["test"]["input_ids"]
    whole = climb(at, rows, ladder, batch_size=64)
    alone = [climb(at, [row], ladder).rungs[0] for row in rows]
    turned = climb(at, rows[::-1], ladder, batch_size=7)
    assert whole.rungs == alone == turned.rungs[::-1]
    torch.testing.assert_close(whole.probabilities, turned.probabilities.flip(0), atol=1e-5, rtol=0)


def test_a_temperature_is_in_the_probabilities_and_in_the_decision(three, splits):
    (first, *_), at = three
    rows = splits["test"]["input_ids"][:20]
    cool, warm = (climb(at, rows, [replace(first, temperature=t, threshold=0.0)]).probabilities for t in (1.0, 2.0))
    torch.testing.assert_close((cool.log() / 2).softmax(dim=-1), warm, atol=1e-5, rtol=0)


def test_a_ladder_reaches_on_texts_what_the_report_says(model, splits, routing):
    for ladder in routing.ladders:
        done = climb(lambda *setting: prune_to(model, *setting).eval(), splits["test"]["input_ids"], ladder.rungs)
        right = done.probabilities.argmax(dim=-1) == torch.tensor(splits["test"]["labels"])
        assert float(right.float().mean()) == pytest.approx(ladder.test.accuracy)
        shares = np.bincount(done.rungs, minlength=len(ladder.rungs)) / len(right)
        np.testing.assert_allclose(shares, ladder.test.shares)


def test_costs_in_the_report_count_every_rung_that_was_run(answers, routing):
    split = answers["validation"]
    flops = split.encoder_flops().sum(axis=1) / split.dense_flops()
    for ladder in routing.ladders:
        cheapest = flops[SETTINGS.index(ladder.rungs[0].setting)]
        assert ladder.validation.cost >= cheapest - 1e-9
        assert (ladder.validation.cost > cheapest + 1e-9) == (ladder.validation.shares[0] < 1)


def test_ladders_are_chosen_on_validation_and_each_is_better_and_dearer_than_the_one_before(answers, routing):
    accuracies = [ladder.validation.accuracy for ladder in routing.ladders]
    costs = [ladder.validation.cost for ladder in routing.ladders]
    assert accuracies == sorted(set(accuracies))
    assert costs == sorted(costs)
    assert len(routing.ladders) > 1
    fixed = answers["validation"].right.mean(axis=1)
    assert accuracies[-1] >= fixed.max()
    other = replace(answers["test"], labels=np.zeros_like(answers["test"].labels))
    assert [ladder.rungs for ladder in find_routing(answers["validation"], other).ladders] == [
        ladder.rungs for ladder in routing.ladders
    ]


def test_shares_by_label_and_by_length_add_up_to_the_whole(answers, routing):
    labels, lengths = answers["test"].labels, answers["test"].lengths
    assert routing.lengths[-1] == lengths.max()
    ranges = np.searchsorted(routing.lengths, lengths)
    for ladder in routing.ladders:
        for groups, members in ((ladder.test.by_label, labels), (ladder.test.by_length, ranges)):
            weights = np.bincount(members, minlength=len(groups)) / len(members)
            np.testing.assert_allclose(weights @ np.array(groups), ladder.test.shares)


def test_temperature_helps_where_a_model_is_overconfident(answers):
    loud = {name: replace(split, logits=split.logits * 8) for name, split in answers.items()}
    for row in find_routing(loud["validation"], loud["test"]).calibration:
        assert row.temperature > 1
        assert row.validation_after < row.validation_before
        assert row.test_after < row.test_before


def test_a_target_names_the_ladder(routing):
    for target in TARGETS:
        fitting = [ladder for ladder in routing.ladders if ladder.validation.cost <= target]
        if fitting:
            assert routing.within(target) is fitting[-1]
    for ladder in routing.ladders:
        assert routing.reaching(ladder.validation.accuracy) is ladder


@pytest.mark.parametrize("target", [0, -1, 1.5, float("nan")])
def test_a_target_cost_that_is_none_is_refused(routing, target):
    with pytest.raises(BudgetError, match=r"The target cost .* is not usable: give a share above 0 and up to 1"):
        routing.within(target)


def test_a_target_that_nothing_meets_says_what_can_be_met(routing):
    with pytest.raises(BudgetError, match=r"cannot be met: the cheapest .* costs 0\.\d+ of the dense encoder"):
        routing.within(0.01)
    with pytest.raises(BudgetError, match=r"cannot be met: the best of this checkpoint is 0\.\d+ on validation"):
        routing.reaching(1.01)


def test_a_report_with_routing_survives_its_file_and_is_in_the_card(report, routing):
    whole = replace(report, routing=routing)
    assert Report.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    card = model_card("tiny", whole)
    for ladder in routing.ladders:
        assert f"| {ladder.test.cost:.3f} | {ladder.test.accuracy:.2%}" in card
    assert "A budget for each text" not in model_card("tiny", report)


def test_damaged_routing_is_refused_in_a_sentence(report, routing):
    values = json.loads(json.dumps(replace(report, routing=routing).to_json()))
    del values["routing"]["ladders"][0]["rungs"][0]["threshold"]
    with pytest.raises(CheckpointError, match=r"report\.json is not complete"):
        Report.from_json(values)


def test_a_pruned_checkpoint_does_not_keep_ladders_to_budgets_that_are_gone(classifier, report, routing):
    whole = BudgetedClassifier(replace(classifier.checkpoint, report=replace(report, routing=routing)), "tiny")
    assert whole.prune(0.5).report.routing is None
