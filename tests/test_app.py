import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import visiting
from filelock import FileLock
from visiting import APP, ran, words

from bba.checkpoints import Checkpoint
from bba.data import synthetic
from bba.data.synthetic import synthetic_split
from bba.measure import latency
from bba.measure.metrics import PAIRS, score_budgets, score_without_attention
from bba.measure.report import BudgetRow, Latency, LatencyRow
from bba.model import Setting
from bba.predict import BudgetedClassifier, Encoded, Prediction
from bba.pruning.plan import Plan
from bba.training.stages import encode
from bba.ui import budget as budget_page
from bba.ui import charts, compare, maps, state, wording
from bba.ui.examples import NEWS, examples, synthetic_answer

BUDGET, CLASSIFY, LATENCY = "pages/explore/budget.py", "pages/explore/classify.py", "pages/measure/latency.py"
TEXT = "hat? tom:hat mia:hat zoe:hat leo:hat"


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    monkeypatch.setattr(budget_page, "ROUNDS", 1)
    monkeypatch.setattr(state, "FRESH", 200)


@pytest.fixture
def root(checkpoint_folder, monkeypatch):
    monkeypatch.setenv("BBA_CHECKPOINTS", str(checkpoint_folder.parent))
    return checkpoint_folder.parent


@pytest.fixture
def own_root(checkpoint_folder, tmp_path, monkeypatch):
    """Return a folder of checkpoints that a test may change; `good` is in it."""
    monkeypatch.setenv("BBA_CHECKPOINTS", str(tmp_path))
    shutil.copytree(checkpoint_folder, tmp_path / "good")
    return tmp_path


def opened(page=BUDGET, **params):
    return visiting.opened(page, **params)


def figures(at):
    return {metric.label: (metric.value, metric.delta) for metric in at.metric}


def titles(at):
    return [json.loads(chart.proto.spec)["layout"].get("title", {}).get("text") for chart in at.get("plotly_chart")]


@pytest.mark.parametrize("page", [BUDGET, CLASSIFY, LATENCY])
def test_a_first_visitor_gets_the_frame_on_every_page(root, page):
    at = opened(page)
    assert at.select_slider(key="budget").value == 0.5
    assert at.selectbox(key="checkpoint").value == "tiny"
    assert not at.error


def test_every_address_has_a_file_that_leads_a_first_visitor_to_the_frame():
    pages = Path(APP).parent / "pages"
    addresses = {path.stem for path in pages.glob("*/*.py")} - {"budget"}  # The budget page has the address "/".
    assert {path.stem for path in pages.glob("*.py")} == addresses
    assert all(
        'runpy.run_path(str(Path(__file__).parents[1] / "app.py"))' in path.read_text() for path in pages.glob("*.py")
    )


def test_the_slider_stops_only_at_measured_budgets(root, report):
    options = opened(LATENCY).select_slider(key="budget").options
    assert [float(option) for option in options] == report.budgets()


def test_moving_the_slider_changes_all_figures_and_the_map(root, report):
    at = opened()
    before = figures(at), titles(at)
    share = f"{100 * report.row(0.5).encoder_cost:.1f} %"
    assert before[0]["Encoder cost"] == (share, "6 of 12 heads")
    assert "Budget 0.5: 6 of 12 heads open" in before[1]
    ran(at.select_slider(key="budget").set_value(0.3).run())
    assert figures(at)["Encoder cost"][1] == "3 of 12 heads"
    assert "Budget 0.3: 3 of 12 heads open" in titles(at)
    assert "(3 heads)" in words(at)
    assert all(figures(at)[name] != before[0][name] for name in ("Latency", "Encoder cost"))


def test_figures_are_live_and_say_on_what(root):
    at = opened()
    assert "live" in figures(at)["Latency"][1]
    assert "live" in figures(at)["Accuracy"][1]
    assert "1 thread, 1 text of 32 tokens" in words(at)


def test_each_stop_is_measured_once_for_all_visitors(root, monkeypatch):
    opened(budget="0.75")
    monkeypatch.setattr(state, "measure_latency", None)
    opened(budget="0.75")


def test_another_task_shows_its_stored_accuracy_and_its_own_example(own_root):
    path = own_root / "good" / "report.json"
    shutil.copytree(own_root / "good", own_root / "teaching")
    path.write_text(json.dumps({**json.loads(path.read_text()), "task": "agnews"}))
    at = opened(checkpoint="teaching")
    assert at.text_area(key="text_budget").value == examples("synthetic")[0]
    ran(at.selectbox(key="checkpoint").set_value("good").run())
    assert at.text_area(key="text_budget").value == NEWS[0]
    assert "measured at training time on 100 agnews test texts" in words(at)
    assert "True label" not in words(at)


def test_state_survives_page_changes(root):
    at = opened()
    at.select_slider(key="budget").set_value(0.75)
    ran(at.text_area(key="text_budget").set_value(TEXT).run())
    ran(at.switch_page(LATENCY).run())
    ran(at.switch_page(CLASSIFY).run())
    assert at.text_area(key="text_classify").value == TEXT
    assert at.select_slider(key="budget").value == 0.75
    assert at.query_params["text"] == TEXT
    assert "True label, by the rule: **leo**" in words(at)


def test_a_link_shows_the_same(root):
    at = opened(CLASSIFY, budget="0.25", checkpoint="tiny", text=TEXT)
    assert at.select_slider(key="budget").value == 0.25
    assert at.text_area(key="text_classify").value == TEXT


@pytest.mark.parametrize("value", ["7", "0", "-1", "nan", "0,5", "abc", ""])
def test_an_invalid_budget_in_the_address_falls_back(root, value):
    assert opened(LATENCY, budget=value).select_slider(key="budget").value == 0.5


@pytest.mark.parametrize("value", ["../../etc", "none", "", "<script>"])
def test_an_invalid_checkpoint_in_the_address_falls_back(root, value):
    assert opened(LATENCY, checkpoint=value).selectbox(key="checkpoint").value == "tiny"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("page", [BUDGET, LATENCY])
def test_without_a_checkpoint_the_app_says_what_to_do(tmp_path, monkeypatch, there, page):
    monkeypatch.setenv("BBA_CHECKPOINTS", str(tmp_path if there else tmp_path / "nowhere"))
    at = opened(page)
    assert at.title[0].value == "No checkpoint yet"
    assert "python -m bba train" in at.code[0].value


def test_a_damaged_checkpoint_is_listed_and_the_others_work(own_root):
    for name in ("cut", "empty", "no_report", "nonsense"):
        shutil.copytree(own_root / "good", own_root / name)
    weights = own_root / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    shutil.rmtree(own_root / "empty")
    (own_root / "empty").mkdir()
    (own_root / "no_report" / "report.json").unlink()
    (own_root / "nonsense" / "report.json").write_text("{}")
    at = opened(checkpoint="cut")
    assert at.selectbox(key="checkpoint").options == ["good"]
    assert at.selectbox(key="checkpoint").value == "good"
    said = " ".join(element.value for element in at.sidebar.markdown)
    assert all(name in said for name in ("**cut**", "**empty**", r"**no\_report**", "**nonsense**", "damaged"))
    assert len(figures(at)) == 4


@pytest.mark.parametrize(("linked", "stop"), [("1", 1), ("1.0", 1), (".25", 0.25), ("0.47", 0.45), ("0.01", 0.05)])
def test_a_link_may_ask_for_any_budget(root, linked, stop):
    at = opened(budget=linked)
    assert at.select_slider(key="budget").value == stop
    ran(at.select_slider(key="budget").set_value(0.75).run())
    assert at.select_slider(key="budget").value == 0.75


def test_a_pruned_checkpoint_has_fewer_stops(own_root, classifier):
    BudgetedClassifier.from_pretrained(own_root / "good").prune(0.3).save_pretrained(own_root / "small")
    at = opened(checkpoint="good", budget="1.0")
    assert at.select_slider(key="budget").value == 1
    ran(at.selectbox(key="checkpoint").set_value("small").run())
    slider = at.select_slider(key="budget")
    assert max(float(option) for option in slider.options) == 0.3
    assert slider.value == 0.3
    for page in (CLASSIFY, LATENCY):
        ran(at.switch_page(page).run())


def test_a_retrained_checkpoint_is_read_anew(own_root):
    path = own_root / "good" / "report.json"
    assert "Trained on 0 texts" in words(opened(LATENCY))
    report = json.loads(path.read_text())
    report["counts"]["train"] = 77
    path.write_text(json.dumps(report))
    os.utime(path, ns=(2**60, 2**60))
    assert "Trained on 77 texts" in words(opened(LATENCY))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Nothing to classify yet"),
        (" \n\t\0", "Nothing to classify yet"),
        ("a" * 1_000_000, "100 % of the words read are unknown"),
        ("tom:hat " * 10_000, "10\u202f000 words: the first 32 tokens were read"),
        (TEXT.replace(" ", "\0 "), "NUL characters"),
        ("😀 🎉", "unknown to this model"),
        ("שלום עולם", "unknown to this model"),
        ("<script>alert(1)</script> **b** $x^2$ :red[r]", "unknown to this model"),
    ],
)
def test_odd_texts_get_one_sentence(root, text, sentence):
    at = opened(CLASSIFY)
    ran(at.text_area(key="text_classify").set_value(text).run())
    assert sentence in words(at).replace("\\", "")
    assert at.text_area(key="text_classify").value == text
    assert not at.error


def test_no_page_interprets_html(root):
    at = opened(CLASSIFY, text="<img src=x onerror=alert(1)>")
    assert not any(element.proto.allow_html for element in at.markdown)
    assert not any("onerror" in element.value for element in at.markdown)


def test_picking_an_example_fills_the_box(root):
    at = opened(CLASSIFY)
    wanted = examples("synthetic")[3]
    ran(at.selectbox(key="example_classify").set_value(wanted).run())
    assert at.text_area(key="text_classify").value == wanted


def test_a_long_text_stays_out_of_the_address(root):
    at = opened(CLASSIFY, text=TEXT)
    ran(at.text_area(key="text_classify").set_value("tom:hat " * 500).run())
    assert "text" not in at.query_params


def test_latency_is_measured_on_request(root):
    at = opened(LATENCY)
    assert "Stored with the checkpoint" in words(at)
    ran(at.button(key="measure").click().run())
    assert "Measured live on this machine" in words(at)
    table = at.dataframe[0].value
    assert next(iter(table["name"])) == "dense"
    assert list(table["name"])[-1] == "no attention"
    assert {"0.25", "0.5", "0.75"} <= set(table["name"])


def test_waiting_for_another_measurement_is_told_and_ends():
    told = threading.Event()
    with FileLock(latency.LOCK):
        waiter = threading.Thread(target=state._wait, args=(told.set,))
        waiter.start()
        assert told.wait(5)
        assert waiter.is_alive()
    waiter.join(5)
    assert not waiter.is_alive()


def test_the_true_label_follows_the_rule():
    for text, label in synthetic.examples(50, 5):
        assert synthetic_answer(text) == synthetic.PEOPLE[label]
    assert all(
        synthetic_answer(text) is None for text in ("", "hat?", "tom:hat", "hat? key? tom:hat", "hat? tom:car", "x")
    )


def test_examples_per_task():
    assert len(examples("agnews")) == len(set(NEWS)) == 6
    assert len(examples("synthetic")) == 6
    assert examples("mine") == []


def rows(*speedups, iqr=0.01):
    """Return a measurement: dense, then these speed-ups."""
    values = [
        LatencyRow(1 - place / 10, 1.0, 12 - place, 0, 1 / speedup, iqr, speedup, 1.0 if place == 0 else 1.3)
        for place, speedup in enumerate((1.0, *speedups))
    ]
    return Latency("cpu", 1, 1, 64, 15, "2", "2026-01-01", values)


def test_a_speedup_within_noise_is_no_gain():
    measured = rows(1.3, 1.001, 0.8)
    assert [wording.gain(measured, row) for row in measured.rows] == [
        "the baseline",
        "faster",
        "no measurable gain",
        "slower",
    ]
    noisy = rows(1.3, iqr=1.0)
    assert wording.gain(noisy, noisy.rows[1]) == "no measurable gain"


def test_plain_switches_markdown_off():
    assert wording.plain("a *b* $c$ :red[d]\n<e>") == r"a \*b\* \$c\$ \:red\[d\] \<e\>"


def test_a_text_cut_is_noticed():
    prediction = Prediction("x", "a", {"a": 1.0}, 0.5, 1.0, 0.5, 0.7, 6, Encoded([1] * 128, 900, 0.0))
    assert wording.notices("w " * 898, prediction) == [
        "898 words: the first 128 tokens were read, the rest was left out."
    ]


def test_milliseconds_have_three_digits():
    assert [wording.milliseconds(value) for value in (0.4561, 4.561, 45.61, 456.1)] == [
        "0.456 ms",
        "4.56 ms",
        "45.6 ms",
        "456 ms",
    ]


def test_the_map_tells_open_closed_and_removed():
    frame = maps.unit_frame([[0.25, 0.5], [None, 1.0]], [[], []], Plan(((0, 1), ()), ((), ())))
    assert list(frame["state"]) == ["open", "open", "removed", "closed"]
    figure = maps.unit_map(frame, "title")
    assert [list(trace.text) for trace in figure.data] == [["0.25", "0.50"], ["x"], ["1.00"]]
    outlines = [(shape.line.dash, shape.line.width) for shape in figure.layout.shapes]
    assert ("dot", 1) in outlines
    assert outlines.count((None, 0)) == 3  # Two open heads of different colours, and the removed one.


def test_the_map_puts_feed_forward_blocks_under_the_heads_of_their_layer():
    blocks = [[(4 * layer + number + 1) / 8 for number in range(4)] for layer in range(2)]
    frame = maps.unit_frame([[0.25, 0.5], [0.75, 1.0]], blocks, Plan(((0, 1), ()), ((0, 3), (1,))))
    assert frame[frame["kind"] == "block"]["state"].value_counts().to_dict() == {"closed": 5, "open": 3}
    placed = maps._placed(frame, 2)
    heads, under = placed[placed["kind"] == "head"], placed[placed["kind"] == "block"]
    assert under["x"].between(0.5, 2.5).all()
    for layer in (1, 2):
        lowest_head = (heads["y"] + heads["dy"])[heads["layer"] == layer].max()
        box = under[under["layer"] == layer]
        assert (box["y"] - box["dy"]).min() > lowest_head
        assert (box["y"] + box["dy"]).max() < layer + 0.5


def test_the_map_of_two_settings_tells_which_has_a_unit():
    plans = Plan(((0, 1), (0,)), ((), ())), Plan(((1,), (0, 1)), ((), ()))
    frame = maps.unit_frame([[0.25, 0.5], [0.5, None]], [[], []], *plans)
    assert list(frame["state"]) == ["only in A", "in both", "in both", "removed"]
    letters = {trace.customdata[0][2]: trace.text[0] for trace in maps.unit_map(frame, "title").data}
    assert letters == {"only in A": "A", "in both": "0.50", "removed": "x"}
    assert compare._less(*plans) == "**B** lacks 1 head that A keeps, and keeps 1 head that A lacks."


def test_opening_budgets_are_rounded_up():
    assert [maps._ceil(value) for value in (1 / 32, 9 / 32, 0.25, 7 / 24)] == ["0.04", "0.29", "0.25", "0.30"]


def test_charts_show_labels_literally():
    figure = charts.probability_bars({"<b>x</b>": 0.7, "y": 0.3})
    assert figure.layout.yaxis.ticktext == ("&lt;b&gt;x&lt;/b&gt;", "y")
    assert tuple(figure.layout.xaxis.range) == (0, 1)


def test_flips_lie_between_the_budgets_where_the_label_changes():
    values = [(0.1, "a", 0.9), (0.1, "b", 0.1), (0.2, "a", 0.4), (0.2, "b", 0.6), (0.3, "a", 0.2), (0.3, "b", 0.8)]
    frame = pd.DataFrame(values, columns=["budget", "label", "probability"])
    assert charts.flips(frame) == [(0.1, 0.2)]
    assert len(charts.flip_chart(frame, 0.2).data) == 2


def test_every_chart_has_titles_and_a_share_runs_from_0_to_1(report):
    accuracy = charts.accuracy_frame([report.no_attention, *report.test])
    times = charts.latency_frame(report.latency, report)
    half = Setting(0.5)
    for figure in (
        charts.accuracy_line(accuracy, half),
        charts.frontier(times, half, 4.0),
        charts.speedup_chart(times, half),
    ):
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text
    assert charts.accuracy_line(accuracy, half).layout.yaxis.range[0] == 0
    assert next(iter(times["name"])) == "dense"
    assert list(times["name"])[-1] == "no attention"
    assert not times["unbeaten"].iloc[-1]


def budget_row(accuracy, low, high, heads=6):
    quality = {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high, "macro_f1": accuracy, "recall": []}
    return BudgetRow(heads / 12, 1.0, heads, 0, heads / 12, 0.7, **quality)


def test_a_difference_is_claimed_only_where_the_intervals_are_apart():
    one, other = budget_row(0.9, 0.88, 0.92), budget_row(0.91, 0.89, 0.93, heads=7)
    assert "neither can be called the more accurate one" in wording.accuracies(one, other, "100 test texts")
    worse = budget_row(0.5, 0.4, 0.6, heads=3)
    assert "**A** is the more accurate one" in wording.accuracies(one, worse, "100 test texts")
    assert "**B** is the more accurate one" in wording.accuracies(worse, one, "100 test texts")
    assert "the same model" in wording.accuracies(one, one, "100 test texts")


def test_two_latencies_are_compared_with_each_other_and_not_within_noise():
    measured = rows(1.25, 1.251, 2.5)
    dense, first, second, third = (row.setting for row in measured.rows)
    assert wording.times(measured, dense, first) == "**B** is 1.25 times as fast as A."
    assert wording.times(measured, third, first) == "**A** is 2.00 times as fast as B."
    assert "No difference" in wording.times(measured, first, second)


@pytest.fixture
def two_dial_root(own_root, two_dials, tokenizer, report):
    """Return a folder with `good`, which has one dial, and `pair`, which has two."""
    split = encode(synthetic_split(50, "test"), tokenizer)
    rows = score_budgets(two_dials, split["input_ids"], split["labels"], PAIRS)
    none = score_without_attention(two_dials, split["input_ids"], split["labels"])
    times = latency.measure_latency(two_dials, PAIRS, latency.LatencySettings(length=16, rounds=1))
    measured = replace(report, validation=rows, test=rows, no_attention=none, latency=times)
    BudgetedClassifier(Checkpoint(two_dials, tokenizer, measured), "pair").save_pretrained(own_root / "pair")
    return own_root


def test_the_second_dial_is_there_only_where_the_checkpoint_has_it(two_dial_root):
    at = opened(checkpoint="good")
    assert [slider.key for slider in at.select_slider] == ["budget"]
    assert "without an FFN budget" in " ".join(caption.value for caption in at.sidebar.caption)
    ran(at.selectbox(key="checkpoint").set_value("pair").run())
    assert at.select_slider(key="ffn").value == 1
    assert [float(stop) for stop in at.select_slider(key="ffn").options] == [0.1, 0.25, 0.5, 0.75, 1.0]


def test_both_dials_move_the_figures_and_the_map(two_dial_root):
    at = opened(checkpoint="pair")
    whole = figures(at)["Encoder cost"]
    ran(at.select_slider(key="ffn").set_value(0.5).run())
    assert figures(at)["Encoder cost"][1] == "6 heads, 4 blocks"
    assert figures(at)["Encoder cost"][0] != whole[0]
    assert "Budget 0.5:0.5: 6 of 12 heads open<br>and 4 of 9 feed-forward blocks" in titles(at)
    assert "at budget 0.5:0.5 (6 heads, 4 blocks)" in words(at)


def test_the_dials_survive_pages_checkpoints_and_links(two_dial_root):
    at = opened(checkpoint="pair", ffn="0.25", budget="0.75")
    assert at.select_slider(key="ffn").value == 0.25
    for page in (CLASSIFY, LATENCY, BUDGET):
        ran(at.switch_page(page).run())
        assert (at.select_slider(key="budget").value, at.select_slider(key="ffn").value) == (0.75, 0.25)
    ran(at.selectbox(key="checkpoint").set_value("good").run())
    assert at.select_slider(key="budget").value == 0.75
    ran(at.select_slider(key="budget").set_value(0.45).run())
    ran(at.selectbox(key="checkpoint").set_value("pair").run())
    assert (at.select_slider(key="budget").value, at.select_slider(key="ffn").value) == (0.25, 0.25)
    ran(at.selectbox(key="checkpoint").set_value("good").run())
    assert at.select_slider(key="budget").value == 0.45


@pytest.mark.parametrize("value", ["7", "0", "nan", "abc"])
def test_an_invalid_ffn_budget_in_the_address_falls_back(two_dial_root, value):
    assert opened(LATENCY, checkpoint="pair", ffn=value).select_slider(key="ffn").value == 1


def test_two_settings_stand_side_by_side(two_dial_root):
    at = opened(checkpoint="pair", compare="true", ffn="0.5", budget_b="0.75", ffn_b="0.25")
    assert (at.select_slider(key="budget_b").value, at.select_slider(key="ffn_b").value) == (0.75, 0.25)
    labels = [metric.label for metric in at.metric]
    assert all(labels.count(name) == 2 for name in ("Accuracy", "Encoder cost", "Latency", "Speed-up"))
    assert all("live" in metric.delta for metric in at.metric if metric.label == "Latency")
    said = words(at)
    assert "at budget 0.5:0.5 (6 heads, 4 blocks)" in said
    assert "at budget 0.75:0.25 (9 heads, 2 blocks)" in said
    assert "**B** lacks no heads and 2 blocks that A keeps, and keeps 3 heads and no blocks that A lacks." in said
    assert "intervals" in said
    assert "times as fast as" in said or "No difference in latency" in said


def test_the_comparison_survives_a_change_of_page(root):
    at = opened()
    ran(at.toggle(key="compare").set_value(True).run())
    ran(at.select_slider(key="budget_b").set_value(0.75).run())
    ran(at.switch_page(LATENCY).run())
    ran(at.switch_page(BUDGET).run())
    assert at.toggle(key="compare").value
    assert at.select_slider(key="budget_b").value == 0.75


def test_a_latency_target_finds_a_setting_and_sets_both_dials(two_dial_root):
    at = opened(LATENCY, checkpoint="pair", target="1000 ms")
    assert "press *Find the best setting*" in words(at)
    ran(at.button(key="find").click().run())
    assert "validation texts" in at.success[0].value
    assert "test texts" in at.success[0].value
    chosen = Setting.parse(at.button(key="use").label.removeprefix("Set the dials to "))
    table = at.dataframe[0].value
    assert len(table) == len(PAIRS) + 1
    if not at.button(key="use").disabled:
        ran(at.button(key="use").click().run())
    assert (at.select_slider(key="budget").value, at.select_slider(key="ffn").value) == chosen
    ran(at.text_input(key="target").set_value("0.001 ms").run())
    assert "is not reachable: the fastest setting, budget" in at.warning[0].value


def test_a_bad_latency_target_gets_one_sentence(root):
    at = opened(LATENCY, target="soon")
    assert "latency target" in at.error[0].value
    assert len(at.get("plotly_chart")) == 2


def test_a_head_is_shown_over_the_words(root, classifier):
    at = opened(CLASSIFY, text="<b>hat?</b> $x$ tom:hat")
    heads = classifier.at(0.5).config.heads
    layer = at.selectbox(key="layer").value
    assert heads[layer]
    assert at.selectbox(key=f"head_{layer}").options == [f"head {head + 1}" for head in heads[layer]]
    assert at.selectbox(key="word").options[0] == "0: [CLS]"
    shown = at.get("html")[0].proto.body
    assert "&lt;b&gt;hat?&lt;/b&gt;" in shown
    assert "<b>" not in shown


def test_a_layer_without_heads_says_so(root, classifier):
    heads = classifier.at(0.05).config.heads
    bare = next(layer for layer, kept in enumerate(heads) if not kept)
    at = opened(CLASSIFY, budget="0.05")
    ran(at.selectbox(key="layer").set_value(bare).run())
    assert f"Layer {bare + 1} has no open head at budget 0.05" in words(at)
