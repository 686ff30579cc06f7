import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from bba.__main__ import main
from bba.backends import ONNX, TorchRunner
from bba.errors import BudgetError, CheckpointError
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
def splits(tokenizer, routing_texts):
    return {name: encode(texts, tokenizer) for name, texts in routing_texts.items()}


@pytest.fixture(scope="module")
def routed(routed_folder):
    return BudgetedClassifier.from_pretrained(routed_folder)


def runs(model):
    """Return what `climb` asks for: what runs a model, and how large it is."""
    return TorchRunner(model), model.config


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
    return ladder, lambda *setting: runs(pruned[Setting(*setting)])


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
        expected = at(*ladder[last].setting)[0].logits_of([rows[row]]).softmax(dim=-1)[0]
        torch.testing.assert_close(done.probabilities[row], expected, atol=1e-5, rtol=0)
        shares = [encoder_share(at(*rung.setting)[1], len(rows[row])) for rung in ladder[: last + 1]]
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
        done = climb(lambda *setting: runs(prune_to(model, *setting).eval()), splits["test"]["input_ids"], ladder.rungs)
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


def test_fixed_budgets_stand_beside_the_ladders(answers, routing):
    split = answers["test"]
    costs = split.encoder_flops().sum(axis=1) / split.dense_flops()
    assert [row.setting for row in routing.fixed] == SETTINGS
    np.testing.assert_allclose([row.test_cost for row in routing.fixed], costs)
    np.testing.assert_allclose([row.test_accuracy for row in routing.fixed], split.right.mean(axis=1))
    for ladder in routing.ladders:
        if len(ladder.rungs) == 1:
            one = next(row for row in routing.fixed if row.setting == ladder.rungs[0].setting)
            assert (one.test_cost, one.test_accuracy) == pytest.approx((ladder.test.cost, ladder.test.accuracy))


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
    for row in find_routing(loud["validation"], loud["test"]).fixed:
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


def test_a_pruned_checkpoint_does_not_keep_ladders_to_budgets_that_are_gone(routed):
    assert routed.prune(0.5).report.routing is None


# Asking for a budget per text

TARGETED = {"target_cost": 0.9}


def test_each_text_gets_the_answer_of_the_budget_where_it_stays(routed, routing, routing_texts):
    texts = routing_texts["test"].texts
    ladder = routing.within(0.9)
    rows = [one.ids for one in routed.encode(texts)]
    done = climb(lambda *setting: runs(routed.at(*setting)), rows, ladder.rungs)
    predictions = routed.predict(texts, "auto", target_cost=0.9)
    assert [len(one.tried) - 1 for one in predictions] == done.rungs
    assert [one.encoder_cost for one in predictions] == done.costs
    for one in predictions:
        assert [step.rung for step in one.tried] == ladder.rungs[: len(one.tried)]
        assert (one.budget, one.ffn_budget) == one.tried[-1].rung.setting
        assert (one.label, one.probability) == (one.tried[-1].label, one.tried[-1].probability)
        assert one.heads == routed.at(one.budget).config.num_kept_heads
    truths = [routed.labels[label] for label in routing_texts["test"].labels]
    right = [one.label == truth for one, truth in zip(predictions, truths, strict=True)]
    assert np.mean(right) == pytest.approx(ladder.test.accuracy)


def test_another_backend_sends_texts_to_the_same_budgets(routed, routing_texts):
    texts = routing_texts["test"].texts[:50]
    here = routed.predict(texts, "auto", **TARGETED)
    there = routed.on(ONNX).predict(texts, "auto", **TARGETED)
    assert [one.backend for one in there] == [ONNX] * len(texts)
    assert [one.budget for one in there] == [one.budget for one in here]
    assert [one.probability for one in there] == pytest.approx([one.probability for one in here], abs=1e-4)


def test_without_a_target_texts_get_the_accuracy_of_the_largest_budget_as_cheaply_as_can_be(routed, report):
    ladder = routed.ladder()
    assert ladder == routed.ladder(target_accuracy=report.validation[-1].accuracy)
    assert ladder.validation.accuracy >= report.validation[-1].accuracy


def test_a_fixed_budget_tries_nothing(routed):
    assert routed.predict(["hat? tom:hat"], 0.5)[0].tried == ()
    assert routed.predict([], "auto") == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"budget": "auto", "ffn_budget": 0.5}, 'Budget "auto" chooses the FFN budget too: leave it out'),
        ({"budget": 0.5, "target_cost": 0.5}, 'A target cost or accuracy is for budget "auto" only'),
        ({"target_accuracy": 0.5}, 'A target cost or accuracy is for budget "auto" only'),
        ({"budget": "auto", "target_cost": 0.9, "target_accuracy": 0.5}, "give one of them"),
        ({"budget": "auto", "target_cost": 1.5}, "give a share above 0 and up to 1"),
        ({"budget": "auto", "target_accuracy": 1.5}, "cannot be met"),
        ({"budget": "automatic"}, "The budget 'automatic' is not usable"),
    ],
    ids=str,
)
def test_what_does_not_go_with_auto_is_refused_in_a_sentence(routed, asked, message):
    for texts in (["hat? tom:hat"], []):
        with pytest.raises(BudgetError, match=message):
            routed.predict(texts, **asked)


def test_a_checkpoint_without_budgets_per_text_says_how_to_get_them(classifier):
    with pytest.raises(CheckpointError, match=r"has no budgets per text: .* `python -m bba calibrate`"):
        classifier.predict(["hat? tom:hat"], "auto")


def test_the_command_says_what_was_tried(routed, routed_folder, capsys):
    command = ["predict", str(routed_folder), "--text", "hat? tom:hat", "--budget", "auto", "--target-cost", "0.9"]
    assert main([*command, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    (expected,) = routed.predict(["hat? tom:hat"], "auto", **TARGETED)
    assert (row["label"], row["budget"]) == (expected.label, expected.budget)
    assert row["encoder_cost"] == pytest.approx(expected.encoder_cost)
    assert [step["threshold"] for step in row["tried"]] == [step.rung.threshold for step in expected.tried]
    assert main(command) == 0
    assert f"budget {expected.tried[0].rung.setting}: {expected.tried[0].label}" in capsys.readouterr().out


def test_a_file_gets_a_budget_for_each_row(routed, routed_folder, routing_texts, tmp_path, capsys):
    texts = routing_texts["test"].texts[:50]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "in.csv", index=False)
    files = ["--input", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]
    assert main(["predict", str(routed_folder), *files, "--budget", "auto", "--target-cost", "0.9"]) == 0
    written = pd.read_csv(tmp_path / "out.csv")
    assert list(written.columns) == ["text", "label", "probability", "budget", "encoder_cost"]
    expected = routed.predict(texts, "auto", **TARGETED)
    assert written["label"].tolist() == [one.label for one in expected]
    assert written["budget"].tolist() == [one.budget for one in expected]
    np.testing.assert_allclose(written["encoder_cost"], [one.encoder_cost for one in expected])
    assert written["budget"].nunique() > 1


@pytest.mark.parametrize("more", [["--ffn-budget", "0.5"], ["--target-cost", "7"]], ids=str)
def test_a_file_is_not_read_before_what_is_asked_is_seen_to_be_good(routed_folder, tmp_path, capsys, more):
    files = ["--input", str(tmp_path / "none.csv"), "--output", str(tmp_path / "out.csv")]
    assert main(["predict", str(routed_folder), *files, "--budget", "auto", *more]) == 1
    error = capsys.readouterr().err
    assert "none.csv" not in error
    assert error.count("\n") == 1
