"""The Inputs page, with a tiny checkpoint that has budgets per text."""

from dataclasses import replace

import pytest
import visiting
from visiting import ran, words

from bba.measure.ladder import Climbed, Fixed, Ladder, Rung
from bba.predict import BudgetedClassifier
from bba.ui import input_charts, input_worth

TEXT = "hat? tom:hat mia:hat zoe:hat leo:hat"


@pytest.fixture
def opened(routed_folder, monkeypatch):
    """Return a function that opens the page, with a text in its address."""
    monkeypatch.setenv("BBA_CHECKPOINTS", str(routed_folder.parent))

    def opened(**params):
        return visiting.opened("pages/explore/inputs.py", **{"text": TEXT, **params})

    return opened


def test_the_dial_stops_at_the_costs_that_budgets_were_chosen_for(opened, routing):
    dial = opened().select_slider(key="mean_cost")
    assert [float(option) for option in dial.options] == [round(one.validation.cost, 4) for one in routing.ladders]


def test_a_text_is_shown_where_it_stays(opened, routed_folder, routing):
    at = opened()
    classifier = BudgetedClassifier.from_pretrained(routed_folder)
    for ladder in routing.ladders:
        ran(at.select_slider(key="mean_cost").set_value(round(ladder.validation.cost, 4)).run())
        (answer,) = classifier.predict([TEXT], "auto", target_cost=ladder.validation.cost)
        assert f"### {answer.label}\nIt stayed at budget **{answer.tried[-1].rung.setting}**" in words(at)
        assert f"It cost {100 * answer.encoder_cost:.1f} % of the dense encoder" in words(at)
        assert f"{answer.heads} of 12 heads open" in " ".join(chart.proto.spec for chart in at.get("plotly_chart"))


def test_fresh_texts_are_ranked_from_hard_to_easy_with_their_true_labels(opened):
    frame = opened().dataframe[0].value
    assert len(frame) == 60
    assert frame["cost"].is_monotonic_decreasing
    assert set(frame["true label"]) <= {"mia", "tom", "zoe", "leo"}


def test_own_lines_replace_the_fresh_texts_and_blank_ones_are_left_out(opened):
    at = opened()
    ran(at.text_area(key="lines_synthetic").set_value("hat? tom:hat\n\n  \nkey? leo:key").run())
    assert sorted(at.dataframe[0].value["text"]) == ["hat? tom:hat", "key? leo:key"]


def test_html_and_markdown_in_own_lines_are_shown_literally(opened):
    at = opened(text="**bold** <b>x</b>")
    assert not at.error
    ran(at.text_area(key="lines_synthetic").set_value("<script>alert(1)</script> $x$").run())
    assert at.dataframe[0].value["text"].tolist() == ["<script>alert(1)</script> $x$"]


def test_an_empty_box_asks_for_a_text(opened):
    at = opened()
    ran(at.text_area(key="text_inputs").set_value(" ").run())
    assert "Nothing to classify yet" in words(at)
    assert len(at.dataframe) == 1


def test_a_checkpoint_without_budgets_per_text_says_how_to_get_them(checkpoint_folder, opened, monkeypatch):
    monkeypatch.setenv("BBA_CHECKPOINTS", str(checkpoint_folder.parent))
    at = opened()
    assert "tiny has no budgets per text yet" in words(at)
    assert at.code[0].value == f"python -m bba calibrate {checkpoint_folder}"


def test_the_budget_of_the_other_pages_is_kept_while_one_looks_at_this_one(opened, monkeypatch):
    at = opened().switch_page("pages/explore/budget.py")
    ran(at.run())
    ran(at.select_slider(key="budget").set_value(0.25).run())
    ran(at.switch_page("pages/explore/inputs.py").run())
    assert [slider.key for slider in at.select_slider] == ["mean_cost"]
    ran(at.switch_page("pages/explore/classify.py").run())
    assert at.select_slider(key="budget").value == 0.25


# What the figures show


@pytest.fixture
def climbed():
    return Climbed(0.5, 0.8, 0.75, 0.85, [0.6, 0.4], [[1.0, 0.0], [0.0, 0.0]], [[0.6, 0.4]])


@pytest.fixture
def ladder(climbed):
    return Ladder([Rung(0.25, 1.0, 1.0, 0.9), Rung(1.0, 1.0, 1.0, 0.0)], climbed, climbed)


def test_groups_without_texts_are_left_out(ladder):
    frame = input_charts.shares_frame(["yes", "no"], ladder.test.by_label, ladder)
    assert frame.to_dict("list") == {"group": ["yes", "yes"], "budget": ["0.25", "1"], "share": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [
        (0.79, "do not tell"),
        (0.7, "A budget for each text is more accurate"),
        (0.9, "One budget for all is more accur"),
    ],
)
def test_a_verdict_needs_an_interval(ladder, accuracy, verdict):
    rival = Fixed(0.5, 1.0, 1.0, 0.5, accuracy, 0, 0, 0, 0)
    assert verdict in input_worth.worth(ladder, rival, "100 test texts")


def test_a_single_budget_is_not_compared_with_itself(ladder):
    alone = replace(ladder, rungs=[Rung(0.5, 1.0, 1.0, 0.0)])
    text = input_worth.worth(alone, Fixed(0.5, 1.0, 1.0, 0.5, 0.8, 0, 0, 0, 0), "100 test texts")
    assert text.startswith("One budget for all texts, 0.5: accuracy 80.0 %")
    assert "accurate" not in text
