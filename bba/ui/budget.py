"""Pieces of the Budget page: figures, head map, accuracy line, and the figures that are measured while one looks."""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bba.measure.latency import LatencySettings
from bba.measure.report import Latency
from bba.ui import charts, layout, state
from bba.ui.state import Choice
from bba.ui.wording import count, gain, milliseconds, percent, plain, row_at, taken_on, tested_on

ROUNDS = 9
LENGTH = 64


@dataclass(frozen=True)
class Slots:
    """Places on the page that are filled once more when a measurement is done."""

    accuracy: DeltaGenerator
    latency: DeltaGenerator
    speedup: DeltaGenerator


def _settings(choice: Choice) -> LatencySettings:
    longest = choice.classifier.checkpoint.model.config.max_position_embeddings
    return LatencySettings(length=min(LENGTH, longest), rounds=ROUNDS)


def _known(choice: Choice) -> Latency | None:
    return state.known_latency(choice, _settings(choice), [choice.budget])


def figures(choice: Choice) -> Slots:
    """Show accuracy, attention cost, latency and speed-up: live ones if they are known, else what is stored."""
    row = choice.report.row(choice.budget)
    total = choice.classifier.checkpoint.model.config.num_dense_heads
    with st.container(key="figures", horizontal=True):
        places = [st.container(width="stretch") for _ in range(4)]
    slots = Slots(places[0].empty(), places[2].empty(), places[3].empty())
    _show_accuracy(slots, (row.accuracy, row.accuracy_low, row.accuracy_high), "")
    places[1].metric(
        "Attention cost",
        f"{row.cost:.3f}",
        f"asked {choice.budget:g}, {row.heads} of {total}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Share of the heads that are kept, out of all: only whole heads, so it is never more than was asked.",
    )
    known = _known(choice)
    _show_latency(slots, known or choice.report.latency, choice.budget, "live" if known else "stored")
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


def _show_latency(slots: Slots, latency: Latency, budget: float, state_word: str) -> None:
    dense = latency.rows[0]
    row = row_at(latency, budget) or dense
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


def head_map(choice: Choice) -> None:
    """Show which heads are open at the budget, and at which budget each of them opens."""
    row = choice.report.row(choice.budget)
    frame = charts.opening_frame(choice.classifier.opening_budgets(), row.cost)
    title = f"Budget {choice.budget:g}: {row.heads} of {len(frame)} heads open"
    layout.chart(charts.head_map(frame, title), frame, "head_map", f"Map of attention heads. {title}.")
    st.caption(
        "Each box is one attention head. Filled: open at this budget. Dotted outline: closed, its weights are cut out. "
        "The number is the budget from which it is open."
    )


def accuracy_line(choice: Choice) -> None:
    """Show accuracy against the budget."""
    report = choice.report
    rows = [report.no_attention, *(report.row(stop) for stop in choice.stops)]
    frame = charts.accuracy_frame(rows)
    tests = tested_on(report)
    st.subheader(
        "Accuracy against budget", help=f"Measured at training time on {tests}; the band is the 95 % interval."
    )
    alt = f"Accuracy against head budget on {tests}, budget {choice.budget:g} marked"
    layout.chart(charts.accuracy_line(frame, choice.budget), frame, "accuracy", alt)


def live_figures(choice: Choice, slots: Slots) -> None:
    """Measure what can be measured now, put it in its place, and say how each figure was taken.

    It comes last on the page: all else is on the screen by then, and moving the slider ends it.
    """
    place = st.container(key="sources").empty()
    report = choice.report
    accuracy = f"measured at training time on {plain(tested_on(report))}"
    if report.task == "synthetic":
        row = report.row(choice.budget)
        stored = (row.accuracy, row.accuracy_low, row.accuracy_high)
        values = state.fresh_accuracy(choice, lambda done: _show_accuracy(slots, stored, ", stored"))
        _show_accuracy(slots, values, ", live")
        accuracy = f"measured now on {count(state.FRESH)} fresh examples, made from a seed that training never saw"
    latency = _known(choice) or _measure(choice, slots, place)
    _show_latency(slots, latency, choice.budget, "live")
    ceiling = latency.rows[-1]
    place.caption(
        f"Accuracy: {accuracy}. Latency: measured live on this machine: {taken_on(latency)}. "
        f"With no attention at all it would be {ceiling.speedup:.2f}x as fast: the ceiling of what this slider saves."
    )


def _measure(choice: Choice, slots: Slots, place: DeltaGenerator) -> Latency:
    stored = choice.report.latency
    place.caption(f"Latency: stored value of {stored.date}, {taken_on(stored)}; being measured on this machine now…")

    def progress(done: float) -> None:
        _show_latency(slots, stored, choice.budget, f"measuring, {done:.0%}")

    def waiting() -> None:
        place.caption("Latency: another measurement is running on this machine; this one follows when it has ended…")

    return state.live_latency(choice, _settings(choice), [choice.budget], progress, waiting)
