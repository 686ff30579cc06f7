"""The Methods page. All figures in here are made up."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
import visiting
from visiting import APP, ran, words

from bba.measure.metrics import wilson
from bba.measure.results import METHODS, OURS, WHOLE, ResultRow, summarise, write_results
from bba.model import Setting
from bba.ui import method_charts, methods, state
from bba.ui.wording import plain

PAGE = "pages/measure/methods.py"
TEXTS = 1_000
CUT = (0.25, 0.5, 0.75)


def row(method, budget, seed=0, right=900, **changes):
    """Return a made-up row with some of 1000 texts right; against ours it is as if ours had 900 of them."""
    low, high = wilson(right, TEXTS)
    values = ResultRow(
        task="news", backbone="word", method=method, seed=seed, budget=budget, ffn_budget=1.0, heads=int(12 * budget),
        blocks=0, cost=budget, encoder_cost=0.4 + 0.6 * budget, flops=1_000_000, parameters=int(1e6 * (1 + budget)),
        validation_accuracy=right / TEXTS, test_texts=TEXTS, accuracy=right / TEXTS, accuracy_low=low,
        accuracy_high=high, macro_f1=right / TEXTS, only_ours=max(0, 900 - right), only_this=max(0, right - 900),
        training_texts=8_000, examples_seen=50_000, training_seconds=180.0, shared_seconds=60.0, median_ms=4 * budget,
        iqr_ms=0.1, speedup=1 / budget, wall_ms_1=3 * budget, wall_ms_32=60 * budget, peak_bytes=2e6,
        cpu="Test CPU", threads=1, batch=1, length=64, rounds=15,
    )  # fmt: skip
    return replace(values, **changes)


def made_up(seeds=3, names=tuple(METHODS)):
    """Return rows of many methods: ours is ahead of the best specialist at 0.25, level at 0.5 and behind at 0.75."""
    rows = []
    for seed in range(seeds):
        rows += [row(name, 1.0, seed, 910 + seed) for name in names if name in WHOLE]
        rows += [row(OURS, budget, seed) for budget in (*CUT, 1.0)]
        for place, name in enumerate((name for name in names if name not in (*WHOLE, OURS)), start=1):
            for budget, best in ((0.25, 880), (0.5, 899), (0.75, 920)):
                right = best + seed - place * (name != "static")
                rows.append(row(name, budget, seed, right, median_ms=4 * budget + place / 50))
    return rows


@pytest.fixture
def folder(checkpoint_folder, tmp_path, monkeypatch):
    """Return an empty folder of results that the app looks at."""
    monkeypatch.setenv("BBA_CHECKPOINTS", str(checkpoint_folder.parent))
    monkeypatch.setenv("BBA_RESULTS", str(tmp_path))
    return tmp_path


@pytest.fixture
def results(folder):
    write_results(folder / "news.csv", made_up())
    return folder


def opened(**params):
    return visiting.opened(PAGE, **params)


def drawn(at):
    """Return the methods in the chart with how many points each has."""
    traces = json.loads(at.get("plotly_chart")[0].proto.spec)["data"]
    return {trace["name"]: len(trace["hovertext"]) for trace in traces if "hovertext" in trace}


def frame(rows):
    return pd.DataFrame([asdict(each) for each in rows])


def test_without_results_the_page_says_how_to_make_some(folder):
    at = opened()
    assert f"there are no results in {plain(str(folder))}. Make" in at.info[0].value  # Escaped, so not in backticks.
    assert at.code[0].value == f"python -m bba compare --task synthetic --out {folder / 'synthetic.csv'}"
    assert not at.get("plotly_chart")


def test_a_damaged_file_gets_its_sentence_and_the_others_work(results):
    lines = (results / "news.csv").read_text().splitlines()
    (results / "binary.csv").write_bytes(bytes(range(256)))
    (results / "blank.csv").write_text("")
    (results / "cut.csv").write_text("\n".join([*lines[:5], lines[5][:40]]))
    (results / "head.csv").write_text(lines[0])
    (results / "other.csv").write_text("a,b\n1,2\n")
    (results / "words.csv").write_text("\n".join([lines[0], ",".join(["x"] * len(lines[0].split(",")))]))
    at = opened()
    assert at.selectbox(key="results").options == ["news"]
    said = [warning.value.replace("\\", "") for warning in at.warning]
    assert len(said) == 6
    assert all("python -m bba compare" in sentence for sentence in said)
    assert "lack the columns" in next(sentence for sentence in said if "other.csv" in sentence)
    assert drawn(at)["budgeted (ours)"] == 4


def test_with_damaged_files_alone_both_are_told(folder):
    (folder / "other.csv").write_text("a,b\n1,2\n")
    at = opened()
    assert "lack the columns" in at.warning[0].value
    assert f"there are no results in {plain(str(folder))}. Make" in at.info[0].value  # Escaped, so not in backticks.


def test_a_file_that_was_written_again_is_read_again(results):
    assert "3 seeds (0, 1, 2)" in words(opened())
    write_results(results / "news.csv", made_up(seeds=2))
    os.utime(results / "news.csv", ns=(2**60, 2**60))
    assert "2 seeds (0, 1)" in words(opened())


def test_all_methods_are_drawn_and_what_was_compared_is_told(results):
    at = opened()
    others = {name: 1 if name in WHOLE else 3 for name in METHODS if name != OURS}
    assert drawn(at) == others | {"budgeted (ours)": 4}
    assert (
        r"Compared on the task news with the backbone word: 8 000 training texts, 1 000 test texts, 3 seeds "
        "(0, 1, 2); latency on Test CPU, 1 thread, batch 1, 64 tokens, median of 15 rounds."
    ).replace(" 000", "\N{NARROW NO-BREAK SPACE}000") in words(at)
    assert "standard deviation over the seeds" in words(at)
    assert len(at.dataframe[0].value) == 4 + sum(others.values())


def test_what_has_no_latency_is_told_and_drawn_against_other_costs(folder):
    none = float("nan")
    rows = [row(OURS, 0.5), row("dense", 1.0), row("routed", 0.5, median_ms=none, iqr_ms=none, speedup=none)]
    write_results(folder / "news.csv", rows)
    at = opened()
    assert "routed" not in drawn(at)
    assert "Not drawn: routed, whose time depends on the text" in words(at)
    assert at.dataframe[0].value.set_index("method").loc["routed", "wall_ms_32"] == 30
    assert "routed" not in set(opened(unbeaten="true").dataframe[0].value["method"])
    assert drawn(opened(axis="parameters"))["routed"] == 1


def test_filters_narrow_what_is_drawn_and_live_in_the_address(results):
    at = opened()
    at.multiselect(key="methods").set_value(["static", OURS])
    at.multiselect(key="budgets").set_value(["0.25", "0.5"])
    ran(at.multiselect(key="seeds").set_value([1]).run())
    assert drawn(at) == {"static": 2, "budgeted (ours)": 2}
    assert "1 seed (1)" in words(at)
    assert set(at.dataframe[0].value["budget"]) == {"0.25", "0.5"}
    assert "2 budgets" in words(at)
    linked = opened(methods=["static", OURS], budgets=["0.25", "0.5"], seeds=["1"], axis="parameters", unbeaten="true")
    assert linked.multiselect(key="methods").value == ["static", OURS]
    assert linked.segmented_control(key="axis").value == "parameters"
    assert linked.toggle(key="unbeaten").value
    assert "1 seed (1)" in words(linked)


def test_nonsense_in_the_address_falls_back(results):
    at = opened(results="../x", methods="none", axis="<b>", budgets="7", seeds="x", unbeaten="maybe")
    assert at.selectbox(key="results").value == "news"
    assert len(drawn(at)) == len(METHODS)


def test_another_comparison_with_other_methods_is_drawn(results):
    write_results(results / "other.csv", made_up(1, ("dense", OURS, "static")))
    at = opened(results="news", methods=["random", "static"], seeds=["2"])
    ran(at.selectbox(key="results").set_value("other").run())
    assert set(drawn(at)) <= {"dense", "static", "budgeted (ours)"}
    assert "1 seed (0)" in words(at)


def test_a_choice_that_leaves_nothing_says_so(results):
    at = opened(methods=["dense"], budgets=["0.25"])
    assert "None of these methods was measured" in at.info[0].value
    assert not at.get("plotly_chart")


@pytest.mark.parametrize("axis", method_charts.AXES)
def test_only_unbeaten_hides_what_another_beats(results, axis):
    table = opened(axis=axis, unbeaten="true").dataframe[0].value
    kept = set(zip(table["method"], table["budget"], strict=True))
    assert ("static", "0.25") not in kept  # Ours is more accurate there and costs no more.
    assert (("budgeted (ours)", "1")) not in kept
    assert ("budgeted (ours)", "0.25") in kept
    assert ("static", "0.75") in kept
    costs = method_charts.points(frame(made_up()))
    for _, one in costs.iterrows():
        cost = method_charts.AXES[axis].column
        beaten = ((costs[cost] <= one[cost]) & (costs["accuracy"] > one["accuracy"])).any() or (
            (costs[cost] < one[cost]) & (costs["accuracy"] >= one["accuracy"])
        ).any()
        assert ((method_charts.name_of(one["method"]), one["setting"]) in kept) != beaten


def test_the_sentence_counts_ahead_level_and_behind(results):
    said = words(opened())
    assert "ours is **ahead at 1, within the noise at 1 and behind at 1** of 3 budgets" in said
    assert "**ahead at 1, within the noise at 0 and behind at 0** of 1 budget." in words(opened(budgets=["0.25"]))
    assert "No specialist was trained for the budgets shown" in words(opened(budgets=["1"]))


def test_one_seed_has_no_interval_and_says_so(folder):
    write_results(folder / "news.csv", made_up(seeds=1))
    at = opened()
    said = words(at)
    assert "ours is **ahead at 2, level at 0 and behind at 1** of 3 budgets" in said
    assert "One seed gives no interval" in said
    assert "95 % Wilson interval of the one seed" in said
    table = at.dataframe[0].value
    assert table[["accuracy_sd", "difference_low", "difference_high"]].isna().all(axis=None)


def test_the_specialist_is_chosen_on_validation_not_on_test():
    rows = [row(OURS, 0.5), row("static", 0.5, right=950, validation_accuracy=0.1), row("smaller", 0.5, right=800)]
    assert "**ahead at 1, level at 0 and behind at 0**" in methods.against_specialists(summarise(frame(rows)))


def test_the_table_has_the_figures(results):
    table = opened().dataframe[0].value.set_index(["method", "budget"])
    static, ours = table.loc[("static", "0.75")], table.loc[("budgeted (ours)", "0.75")]
    assert static["accuracy"] == pytest.approx(92.1)
    assert static["accuracy_sd"] == pytest.approx(0.1)
    assert static["difference"] == pytest.approx(2.1)
    assert static["difference_low"] == pytest.approx(2.1 - 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert 0 < static["smallest_p"] < static["largest_p"] < 0.001
    assert static["minutes"] == 3
    assert static["words"] == METHODS["static"]
    assert ours[["difference", "difference_low", "smallest_p"]].isna().all()


def test_the_cost_of_training_counts_what_is_shared_once(results):
    costs = opened().dataframe[1].value.set_index("method")
    assert costs.loc["static", ["budgets", "models", "minutes"]].tolist() == [3, 3, 7]
    assert costs.loc["dense", ["budgets", "models"]].tolist() == [1, 1]
    assert costs.loc["budgeted (ours)", "budgets"] == 4


def test_every_method_has_a_symbol_of_its_own():
    assert set(METHODS) <= set(method_charts.MARKS)
    looks = method_charts.marks([*METHODS, "another", "<i>new</i>"])
    assert len({mark.symbol for mark in looks.values()}) == len(looks)


@pytest.mark.parametrize("axis", method_charts.AXES)
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_chart_has_titles_bars_and_our_line(axis, seeds):
    means = method_charts.points(frame(made_up(seeds, (*METHODS, "<i>new</i>"))))
    figure = method_charts.accuracy_chart(means, axis, Setting(0.5))
    assert "not from 0" in figure.layout.yaxis.title.text
    assert figure.layout.xaxis.title.text
    traces = {trace.name: trace for trace in figure.data}
    assert "&lt;i&gt;new&lt;/i&gt;" in traces
    assert len(figure.data) == len(METHODS) + 2
    assert traces["chosen now"].y == (0.9,)
    ours, static = traces["budgeted (ours)"], traces["static"]
    assert (ours.mode, static.mode) == ("lines+markers", "markers")
    assert "budget 0.25" in static.hovertext[0]
    if axis == "latency":
        assert tuple(static.x) == pytest.approx(tuple(4 * budget + 2 / 50 for budget in CUT))
        assert tuple(static.error_x.array) == pytest.approx((0.05,) * 3)
    else:
        assert static.error_x.array is None
    if seeds == 1:
        low, high = wilson(880, TEXTS)
        assert (static.error_y.array[0], static.error_y.arrayminus[0]) == pytest.approx((high - 0.88, 0.88 - low))
    else:
        assert tuple(static.error_y.array) == pytest.approx((0.001,) * 3)


def test_methods_of_a_budget_stand_side_by_side_and_never_reach_the_next():
    means = method_charts.points(frame(made_up()))
    figure = method_charts.accuracy_chart(means, "encoder cost", Setting(0.3))
    placed = [(budget, x) for trace in figure.data for budget, x in zip(CUT, trace.x, strict=False) if len(trace.x) > 1]
    groups = [sorted(x for at, x in placed if at == budget) for budget in CUT]
    assert all(len(set(group)) == len(METHODS) - len(WHOLE) for group in groups)
    assert groups[0][-1] < groups[1][0] < groups[1][-1] < groups[2][0]


def test_the_results_lie_beside_the_app_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("BBA_RESULTS", raising=False)
    assert state.results_root() == Path(APP).parent / "docs" / "results"


def test_methods_that_are_equally_accurate_do_not_stretch_the_axis():
    rows = [asdict(row(method, 0.5, seed)) for method in METHODS for seed in (0, 1)]
    means = method_charts.points(pd.DataFrame(rows))
    bottom, top = method_charts.accuracy_chart(means, "encoder cost", Setting(0.5)).layout.yaxis.range
    assert 0.88 < bottom < 0.9 < top < 0.92
