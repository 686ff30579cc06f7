"""Pieces of the Budget page that put two settings side by side, A and B."""

import streamlit as st

from bba.measure.report import Latency
from bba.pruning.plan import Plan
from bba.ui import budget, dials, layout, maps
from bba.ui.budget import Slots
from bba.ui.state import Choice
from bba.ui.wording import accuracies, kept, plain, tested_on, times


def second(choice: Choice) -> Choice | None:
    """Offer to compare with a second setting; return it, or None if nobody asked for one."""
    on = st.toggle(
        "Compare with a second setting",
        key="compare",
        bind="query-params",
        help="Shows the setting above, A, beside another one of the same checkpoint, B.",
    )
    return choice.at(dials.second_setting(choice)) if on else None


def figures(first: Choice, other: Choice) -> list[Slots]:
    """Show the figures of both settings; return the places of those that are measured."""
    live = budget.known([first, other])
    slots = []
    for name, column, choice in zip("AB", st.columns(2, gap="large"), (first, other), strict=True):
        with column:
            st.subheader(f"{name}: budget {choice.setting}")
            slots.append(budget.figures(choice, live, f"figures_{name.lower()}", in_a_row=2))
    return slots


def verdicts(first: Choice, other: Choice) -> None:
    """Say what the stored accuracies allow to say."""
    st.markdown(accuracies(first.row, other.row, plain(tested_on(first.report))))


def unit_map(first: Choice, other: Choice) -> None:
    """Show which heads and feed-forward blocks one setting has and the other has not."""
    classifier, plans = first.classifier, (budget.plan(first), budget.plan(other))
    frame = maps.unit_frame(classifier.opening_budgets(), classifier.opening_ffn_budgets(), *plans)
    title = "<br>".join(f"{name}: {kept(each.row)}" for name, each in (("A", first), ("B", other)))
    layout.chart(maps.unit_map(frame, title), frame, "head_map", f"What only A and only B keep. {_less(*plans)}")
    st.markdown(_less(*plans))
    st.caption(
        "Filled: open in both. Marked A, solid outline: open in A only. Marked B, dashed outline: open in B only. "
        "Dotted outline: closed in both. The number is the budget from which a head is open."
    )


def _less(first: Plan, other: Plan) -> str:
    """Return in a sentence what each plan has that the other has not."""
    return f"**B** lacks {_missing(first, other)} that A keeps, and keeps {_missing(other, first)} that A lacks."


def _missing(has: Plan, lacks: Plan) -> str:
    """Return how many units one plan has and another lacks."""
    counts = []
    for units, own, others in (("heads", has.heads, lacks.heads), ("blocks", has.blocks, lacks.blocks)):
        if any(own) or any(others):
            number = sum(len(set(one) - set(other)) for one, other in zip(own, others, strict=True))
            counts.append(f"{number or 'no'} {units.removesuffix('s') if number == 1 else units}")
    return " and ".join(counts)


def answers(first: Choice, other: Choice, text: str) -> None:
    """Show what each setting makes of a text."""
    if layout.is_blank(text):
        layout.answer(first, text)
        return
    for name, choice in zip("AB", (first, other), strict=True):
        st.markdown(f"**{name}**")
        layout.answer(choice, text, f"prediction_{name.lower()}")


def latency(measured: Latency, first: Choice, other: Choice) -> None:
    """Say how the two latencies, which were measured in turn in one run, compare."""
    with st.container(key="compared"):
        st.markdown(times(measured, first.setting, other.setting))


def page(first: Choice, other: Choice) -> None:
    """Show both settings side by side."""
    slots = figures(first, other)
    verdicts(first, other)
    place = st.container()
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.subheader("What one keeps and the other lacks")
        unit_map(first, other)
    with right:
        st.subheader("Try it")
        answers(first, other, layout.text_box(first, "budget"))
    measured = budget.live_figures([first, other], slots)
    with place:
        latency(measured, first, other)
