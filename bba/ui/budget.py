"""Pieces of the Budget page: figures, the map of units, accuracy line, and what is measured while one looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bba.measure.latency import LatencySettings, usual_length
from bba.measure.report import Latency
from bba.pruning.plan import Plan, plan_at
from bba.ui import charts, layout, maps, state
from bba.ui.state import Choice
from bba.ui.wording import count, gain, kept_of_all, milliseconds, percent, plain, row_at, taken_on, tested_on

ROUNDS = 9


@dataclass(frozen=True)
class Slots:
    """Places on the page that are filled once more when a measurement is done."""

    accuracy: DeltaGenerator
    latency: DeltaGenerator
    speedup: DeltaGenerator


def _settings(choice: Choice) -> LatencySettings:
    return LatencySettings(length=usual_length(choice.classifier.checkpoint.model.config), rounds=ROUNDS)


def known(choices: Sequence[Choice]) -> Latency | None:
    """Return the live measurement of these settings of one checkpoint, taken in one run, if there has been one."""
    return state.known_latency(choices[0], _settings(choices[0]), [choice.setting for choice in choices])


def figures(choice: Choice, live: Latency | None, key: str = "figures", in_a_row: int = 4) -> Slots:
    """Show accuracy, encoder cost, latency and speed-up: live ones if they are known, else what is stored."""
    row = choice.row
    places: list[DeltaGenerator] = []
    with st.container(key=key):
        while len(places) < 4:
            with st.container(horizontal=True):
                places += [st.container(width="stretch") for _ in range(in_a_row)]
    slots = Slots(places[0].empty(), places[2].empty(), places[3].empty())
    _show_accuracy(slots, (row.accuracy, row.accuracy_low, row.accuracy_high), "")
    places[1].metric(
        "Encoder cost",
        percent(row.encoder_cost),
        kept_of_all(row, choice.classifier.checkpoint.model.config),
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Share of the dense encoder's floating-point operations that is left, attention and feed-forward part "
        "together, for a text of 64 tokens. Only whole heads and blocks are kept, never more than was asked.",
    )
    _show_latency(slots, live or choice.report.latency, choice, "live" if live else "stored")
    return slots


def _show_accuracy(slots: Slots, values: tuple[float, float, float], state_word: str) -> None:
    accuracy, low, high = values
    slots.accuracy.metric(
        "Accuracy",
        percent(accuracy),
        f"{100 * low:.1f} to {percent(high)}{state_word}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Share of texts that get the right label, and its 95 % interval.",
    )


def _show_latency(slots: Slots, latency: Latency, choice: Choice, state_word: str) -> None:
    dense, row = latency.rows[0], row_at(latency, choice.setting)
    verdict = gain(latency, row)
    slots.latency.metric(
        "Latency",
        milliseconds(row.median_ms),
        state_word if "%" in state_word else f"dense {milliseconds(dense.median_ms)}, {state_word}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help=f"Time to classify, of the really pruned model. Measured on {taken_on(latency)}.",
    )
    slots.speedup.metric(
        "Speed-up",
        f"{row.speedup:.2f}x",
        verdict if verdict == "no measurable gain" else f"{verdict}, {state_word}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Time of the dense model over time of the pruned model, both measured in turn in the same run.",
    )


def plan(choice: Choice) -> Plan:
    """Return which heads and blocks a choice keeps."""
    return plan_at(choice.classifier.checkpoint.model, *choice.setting)


def unit_map(choice: Choice) -> None:
    """Show which heads and feed-forward blocks are open, and at which budget each of them opens."""
    classifier, row = choice.classifier, choice.row
    frame = maps.unit_frame(classifier.opening_budgets(), classifier.opening_ffn_budgets(), plan(choice))
    total = classifier.checkpoint.model.config.num_dense_heads
    title = f"Budget {choice.setting}: {row.heads} of {total} heads open"
    blocks = classifier.checkpoint.model.config.num_dense_blocks
    if blocks:
        title += f"<br>and {row.blocks} of {blocks} feed-forward blocks"
    alt = f"Map of attention heads and feed-forward blocks. {title.replace('<br>', ' ')}."
    layout.chart(maps.unit_map(frame, title), frame, "head_map", alt)
    st.caption(
        "Each box is one attention head; the number is the budget from which it is open. "
        + ("The small boxes under the heads are blocks of feed-forward neurons. " if blocks else "")
        + "Filled: open at this budget. Dotted outline: closed, its weights are cut out."
    )


def accuracy_line(choice: Choice) -> None:
    """Show accuracy against the head budget."""
    report = choice.report
    rows = [report.row(*setting) for setting in choice.settings]
    if report.no_attention and choice.setting.ffn_budget == 1:
        rows.insert(0, report.no_attention)
    frame = charts.accuracy_frame(rows)
    tests = tested_on(report)
    st.subheader(
        "Accuracy against budget", help=f"Measured at training time on {tests}; the band is the 95 % interval."
    )
    alt = f"Accuracy against head budget on {tests}, budget {choice.setting} marked"
    layout.chart(charts.accuracy_line(frame, choice.setting), frame, "accuracy", alt)
    if choice.setting.ffn_budget < 1:
        st.caption(f"Blue: at FFN budget {choice.setting.ffn_budget:g}. Grey, dashed: attention only (FFN budget 1).")


def live_figures(choices: Sequence[Choice], slots: Sequence[Slots]) -> Latency:
    """Measure what can be measured now, put it in its place, and say how each figure was taken.

    It comes last on the page: all else is on the screen by then, and moving a slider ends it.

    Args:
        choices: settings of one checkpoint, timed in turn in one run.
        slots: the places of each one's figures.
    """
    place = st.container(key="sources").empty()
    accuracy = " ".join({_accuracy(*pair): None for pair in zip(choices, slots, strict=True)})
    latency = known(choices) or _measure(choices, slots, place)
    for choice, its in zip(choices, slots, strict=True):
        _show_latency(its, latency, choice, "live")
    ceiling = latency.ceiling
    place.caption(
        f"Accuracy: {accuracy}. Latency: measured live on this machine: {taken_on(latency)}."
        + (
            f" With no attention at all it would be {ceiling.speedup:.2f}x as fast: the ceiling of what the head "
            "budget alone saves."
            if ceiling
            else ""
        )
    )
    return latency


def _accuracy(choice: Choice, slots: Slots) -> str:
    """Measure accuracy anew where examples can be made, and return in words on what it was measured."""
    if choice.report.task != "synthetic":
        return f"measured at training time on {plain(tested_on(choice.report))}"
    row = choice.row
    stored = (row.accuracy, row.accuracy_low, row.accuracy_high)
    values = state.fresh_accuracy(choice, lambda done: _show_accuracy(slots, stored, ", stored"))
    _show_accuracy(slots, values, ", live")
    return f"measured now on {count(state.FRESH)} fresh examples, made from a seed that training never saw"


def _measure(choices: Sequence[Choice], slots: Sequence[Slots], place: DeltaGenerator) -> Latency:
    stored = choices[0].report.latency
    place.caption(f"Latency: stored value of {stored.date}, {taken_on(stored)}; being measured on this machine now…")

    def progress(done: float) -> None:
        for choice, its in zip(choices, slots, strict=True):
            _show_latency(its, stored, choice, f"measuring, {done:.0%}")

    def waiting() -> None:
        place.caption("Latency: another measurement is running on this machine; this one follows when it has ended…")

    asked = [choice.setting for choice in choices]
    return state.live_latency(choices[0], _settings(choices[0]), asked, progress, waiting)
