"""The lesson: its steps, its answers, where it says what is missing, and the live training behind it."""

import json
import re
import shutil
import sys
import time
from dataclasses import asdict
from itertools import chain

import numpy as np
import pytest
import torch
import visiting
from test_methods import row
from visiting import ran, words

from bba.data import synthetic
from bba.measure.results import OURS, write_results
from bba.model.inference import logits_of
from bba.predict import BudgetedClassifier
from bba.pruning.masking import mask_heads
from bba.pruning.plan import plan_at
from bba.pruning.surgery import prune
from bba.settings import ModelSettings, StageSettings, TrainSettings
from bba.training import live, live_run
from bba.ui import state
from bba.ui.examples import synthetic_answer
from bba.ui.lesson import facts as computing
from bba.ui.lesson import training
from bba.ui.lesson.facts import Facts
from bba.ui.lesson.page import STEPS

LESSON, BUDGET = "pages/learn/lesson.py", "pages/explore/budget.py"
SIGHT = live_run.Sight("soft", 50, 100, 1.5, 0.7, [0.3, 0.5], [[1.0, 0.25]])


@pytest.fixture(autouse=True)
def small_counts(monkeypatch):
    monkeypatch.setattr(computing, "TEXTS", 120)
    monkeypatch.setattr(computing, "ROUNDS", 2)


@pytest.fixture
def root(checkpoint_folder, tmp_path, monkeypatch):
    """Return a folder of checkpoints with the teaching one, which a test may change; there are no results."""
    shutil.copytree(checkpoint_folder, tmp_path / "synthetic")
    monkeypatch.setenv("BBA_CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("BBA_RESULTS", str(tmp_path / "results"))
    return tmp_path


@pytest.fixture
def facts(root):
    return Facts(state.choose(root / "synthetic"))


@pytest.fixture
def specialists(root):
    """Write a made-up comparison: ours is behind the specialist at one of three budgets."""
    rights = {0.25: 850, 0.5: 899, 0.75: 930}
    rows = [row(OURS, budget) for budget in rights]
    rows += [row("static", budget, right=right) for budget, right in rights.items()]
    write_results(root / "results" / "synthetic.csv", rows)


def opened(page=LESSON, **params):
    return visiting.opened(page, **params)


def guessed(at, value):
    widget = next(each for each in (*at.radio, *at.select_slider) if each.label == "Your guess")
    widget.set_value(value)
    return ran(next(button for button in at.button if button.label == "That is my guess").click().run())


def charts(at):
    return [chart.proto.spec for chart in at.get("plotly_chart")]


@pytest.mark.parametrize("number", range(1, len(STEPS) + 1))
def test_each_step_asks_before_it_tells_and_its_picture_then_shows_more(root, specialists, number):
    at = opened(step=str(number))
    assert at.header[0].value == STEPS[number - 1].title
    assert f"Step {number} of {len(STEPS)}" in at.get("progress")[0].proto.text
    before, picture = words(at), charts(at)
    assert "You guessed" not in before
    options = next(each for each in (*at.radio, *at.select_slider) if each.label == "Your guess").options
    guessed(at, options[0])
    assert re.search(r"You guessed \*\*|you guessed right", words(at))
    assert at.query_params["guess"] == options[0]
    assert number in (1, 3) or charts(at) != picture  # Step 1 shows words, and the dial's map is the visitor's own.


def test_the_button_of_what_comes_next_stands_out(root):
    def primary(at):
        return [button.label for button in at.button if button.proto.type == "primary"]

    at = opened(step="2")
    assert primary(at) == ["That is my guess"]
    assert primary(guessed(at, "40")) == ["Next"]


def test_a_link_shows_a_step_with_its_guess(root):
    at = opened(step="2", guess="40")
    assert "You guessed **40**" in words(at)
    assert at.header[0].value == "All heads on"


@pytest.mark.parametrize("step", ["0", "9", "-1", "two", "", "²"])
def test_a_step_that_is_none_is_the_first(root, step):
    assert opened(step=step).header[0].value == STEPS[0].title


def test_a_guess_that_is_none_of_the_options_is_none(root):
    at = opened(step="2", guess="<b>41</b>")
    assert "You guessed" not in words(at)
    assert "guess" not in at.query_params


def test_hidden_answers_wait_and_the_address_says_so(root):
    at = opened(step="2", answers="hidden")
    guessed(at, "40")
    assert "Your guess: **40**. The answers are hidden for now." in words(at)
    assert "It is **" not in words(at)
    assert "no heads" not in charts(at)[0]
    ran(at.toggle(key="hide_answers").set_value(False).run())
    assert "You guessed **40**" in words(at)
    assert "answers" not in at.query_params


def test_guesses_and_the_step_outlive_other_steps_and_pages(root):
    at = guessed(opened(step="2"), "40")
    ran(at.button(key="next").click().run())
    assert at.query_params["step"] == "3"
    assert "guess" not in at.query_params
    ran(at.switch_page(BUDGET).run())
    ran(at.switch_page(LESSON).run())
    assert at.header[0].value == STEPS[2].title
    ran(at.button(key="back").click().run())
    assert "You guessed **40**" in words(at)


def test_the_lesson_leaves_the_checkpoint_and_the_dial_of_other_pages_as_they_are(root):
    shutil.copytree(root / "synthetic", root / "other")
    at = opened(BUDGET, checkpoint="other", budget="0.25")
    ran(at.switch_page(LESSON).run())
    assert not at.selectbox
    ran(at.switch_page(BUDGET).run())
    assert at.selectbox(key="checkpoint").value == "other"
    assert at.select_slider(key="budget").value == 0.25


def test_without_the_teaching_checkpoint_the_lesson_says_how_to_make_it(root):
    (root / "synthetic").rename(root / "other")
    at = opened()
    assert at.title[0].value == "The lesson needs its model"
    assert f"--out {root / 'synthetic'}" in at.code[0].value


def test_a_damaged_teaching_checkpoint_is_named(root):
    (root / "synthetic" / "config.json").write_text("{")
    at = opened()
    assert at.title[0].value == "The lesson needs its model"


def test_without_results_the_step_about_specialists_says_how_to_get_them(root):
    at = opened(step="7")
    assert "python -m bba compare --task synthetic" in at.code[0].value
    assert not at.radio
    assert not at.button(key="next").disabled


def test_the_answer_about_specialists_comes_from_the_results(root, specialists):
    at = guessed(opened(step="7"), "2 of 3")
    assert "**2 of 3**: you guessed right" in words(at)


def test_answers_follow_the_checkpoint(root, facts):
    """Trained again, here: changed so that it always names the person that the fresh texts ask for least, or most."""
    before, share = guessed(opened(step="2"), "40"), facts.accuracy(facts.plan(0.0))
    people = np.bincount(facts.labels, minlength=4)
    person = next(int(each) for each in people.argsort()[[0, -1]] if people[each] / len(facts.labels) != share)
    changed = BudgetedClassifier.from_pretrained(root / "synthetic")
    with torch.no_grad():
        changed.checkpoint.model.classifier.bias[person] += 1_000
    shutil.rmtree(root / "synthetic")
    changed.save_pretrained(root / "synthetic")
    after = guessed(opened(step="2"), "40")
    assert f"It is **{100 * share:.4g} of 100**" in words(before)
    assert f"It is **{100 * people[person] / len(facts.labels):.4g} of 100**" in words(after)


def test_enough_is_the_smallest_budget_from_which_on_a_text_is_always_right(facts):
    stops, enough = facts.choice.stops, facts.enough()
    right = {stop: facts.right(facts.plan(stop)) for stop in stops}
    for text, budget in enumerate(enough):
        stays = [stop for stop in stops if all(right[other][text] for other in stops if other >= stop)]
        assert (np.isnan(budget) and not stays) or budget == min(stays)


def test_the_wrong_heads_are_those_that_stay_longest(facts):
    kept = facts.wrong_plan(3)
    model = facts.model
    longest = plan_at(model, 3 / 12)
    assert kept.num_heads == 9
    assert not any(set(one) & set(other) for one, other in zip(kept.heads, longest.heads, strict=True))


def test_masked_heads_compute_what_pruned_ones_do_at_full_size(model, tokenizer):
    rows = tokenizer(synthetic.synthetic_split(20, "mask").texts)["input_ids"]
    plan = plan_at(model, 0.25)
    masked = mask_heads(model, plan)
    torch.testing.assert_close(logits_of(masked, rows), logits_of(prune(model, plan).eval(), rows), atol=1e-5, rtol=0)
    assert not torch.allclose(logits_of(masked, rows), logits_of(model, rows), atol=1e-3)
    assert masked.num_parameters() == model.num_parameters()


def test_the_texts_of_the_training_keep_their_answers():
    whole, easy = synthetic.synthetic_split(60, "test"), live.few_things(60, "test")
    simpler = live.simpler(easy, 0)
    for split in (easy, simpler):
        assert split.labels == whole.labels
        assert [synthetic_answer(text) for text in split.texts] == [synthetic.PEOPLE[label] for label in whole.labels]
        things = {word.partition(":")[2] for text in split.texts for word in text.split() if ":" in word}
        assert things == set(synthetic.THINGS[:3])
    assert {sum(":" in word for word in text.split()) for text in simpler.texts} == {4, 8, 12}


def test_the_training_shows_every_stage_and_teaches_the_gates():
    sights = []
    settings = TrainSettings(
        dense=StageSettings(1, 1e-3), soft=StageSettings(1, 1e-3), hard=StageSettings(1, 1e-3), batch_size=16,
        min_steps=1,
    )  # fmt: skip
    shape = ModelSettings(hidden_size=16, layers=2, heads=2, ffn_size=16, max_length=32, dropout=0.0, token_dropout=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "EVERY", 5)
        patch.setattr(live, "FRESH", 20)
        model = live.train(sights.append, shape, settings, texts=160)
    assert [(sight.stage, sight.step) for sight in sights] == [
        ("dense", 5), ("dense", 10), ("soft", 15), ("soft", 20), ("hard", 25), ("hard", 30)
    ]  # fmt: skip
    assert all(sight.steps == 30 and len(sight.accuracy) == 4 for sight in sights)
    assert sights[0].gates == [[1, 1], [1, 1]]
    assert sum(map(sum, sights[2].gates)) == pytest.approx(2, abs=1e-3)
    assert sorted(chain(*sights[-1].gates)) == [0, 0, 1, 1]
    assert len(set(model.gates.scores.tolist())) == 4


def telling(*lines, then=""):
    """Return the command of a run that prints these lines."""
    return (sys.executable, "-c", f"for line in {lines!r}: print(line, flush=True)\n{then}")


def ended(run):
    deadline = time.monotonic() + 60
    while run.view().running:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run.view()


def as_json(sight):
    return json.dumps(asdict(sight))


def test_a_run_is_seen_line_by_line_and_ends():
    run = live_run.LiveRun(telling(as_json(SIGHT), as_json(SIGHT)))
    assert run.view().ending is None
    assert run.start() == 1
    view = ended(run)
    assert view.ending == "finished"
    assert view.sights == (SIGHT, SIGHT)


def test_one_run_at_a_time_and_it_can_be_stopped():
    run = live_run.LiveRun(telling(then="import time; time.sleep(60)"))
    assert run.start() == 1
    assert run.start() is None
    run.stop()
    assert ended(run).ending == "stopped"
    assert run.start() == 2
    run.stop()


def test_a_run_that_breaks_off_or_takes_too_long_is_told():
    assert ended_after(live_run.LiveRun(telling(as_json(SIGHT), then="raise SystemExit(3)"))).ending == "failed"
    slow = live_run.LiveRun(telling(then="import time; time.sleep(60)"), limit_seconds=0.1)
    assert ended_after(slow).ending == "overdue"


def ended_after(run):
    run.start()
    return ended(run)


def test_all_visitors_see_the_same_run_and_only_its_owner_stops_it(root, monkeypatch):
    run = live_run.LiveRun(telling(as_json(SIGHT), then="import time; time.sleep(60)"))
    monkeypatch.setattr(training, "live_run", lambda: run)
    owner, other = (opened(step="4", show="train one now") for _ in range(2))
    ran(owner.button(key="train").click().run())
    while not run.view().sights:
        time.sleep(0.02)
    ran(owner.run())
    ran(other.run())
    assert len(charts(owner)) == len(charts(other)) == 3
    assert "Another visitor started this run" in words(other)
    assert not any(button.key == "stop" for button in other.button)
    ran(owner.button(key="stop").click().run())
    assert ended(run).ending == "stopped"
    assert "Stopped. It reached step 50 of 100 after 2 seconds." in words(ran(other.run()))
