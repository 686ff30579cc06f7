"""Pieces of the Inputs page: where all test texts stay, and what a budget for each of them is worth."""

from collections.abc import Sequence

import streamlit as st

from bba.measure.ladder import Fixed, Ladder, Routing
from bba.ui import input_charts, layout
from bba.ui.state import Choice
from bba.ui.wording import percent, plain, tested_on


def shares(choice: Choice, known: Routing, picked: Ladder) -> None:
    """Show where the test texts stay, by label and by length."""
    if len(picked.rungs) == 1:
        return
    tests = plain(tested_on(choice.report))
    st.subheader("Where texts stay", help=f"Measured on {tests}.")
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("By their true label")
        _shares(choice.report.labels, picked.test.by_label, picked, "by_label")
    with right:
        st.markdown("By their length")
        _shares(_ranges(known), picked.test.by_length, picked, "by_length")


def _shares(groups: Sequence[str], of_groups: Sequence[Sequence[float]], picked: Ladder, key: str) -> None:
    frame = input_charts.shares_frame(groups, of_groups, picked)
    alt = f"Share of the test texts that stay at each budget, {key.replace('_', ' ')}"
    layout.chart(input_charts.shares_chart(frame), frame, key, alt)


def _ranges(known: Routing) -> list[str]:
    """Return the ranges of lengths in words."""
    starts = [1, *(most + 1 for most in known.lengths)]
    return [f"{least} to {most} tokens" for least, most in zip(starts, known.lengths, strict=False)]


def trade_off(choice: Choice, known: Routing, picked: Ladder) -> None:
    """Show accuracy against mean cost, beside the same budget for all texts, and say in words which is better."""
    frame = input_charts.trade_off_frame(known)
    tests = plain(tested_on(choice.report))
    st.subheader("What it is worth", help=f"Measured on {tests}; bars are 95 % intervals.")
    st.markdown(worth(picked, _rival(choice, known, picked), tests))
    alt = f"Accuracy against mean cost on {tests}: a budget for each text, and the same budget for all"
    layout.chart(input_charts.trade_off(frame, picked), frame, "trade_off", alt)
    before, after = known.test_errors
    st.caption(
        f"Probabilities are calibrated: over {len(known.fixed)} budgets the mean expected calibration error on the "
        f"test texts is {before:.3f} before and {after:.3f} after. One seed."
    )


def _rival(choice: Choice, known: Routing, picked: Ladder) -> Fixed | None:
    """Return the fixed budget, the most accurate one on validation, that costs no more than a ladder on average."""
    accuracy = {row.setting: row.accuracy for row in choice.report.validation}
    affordable = [row for row in known.fixed if row.test_cost <= picked.test.cost + 1e-9]
    return max(affordable, key=lambda row: accuracy[row.setting], default=None)


def worth(picked: Ladder, rival: Fixed | None, tests: str) -> str:
    """Return in words how a ladder compares with the best fixed budget of no higher cost."""
    mine = f"accuracy {percent(picked.test.accuracy)} at a mean cost of {percent(picked.test.cost)}"
    if rival is None or [rival.setting] == [rung.setting for rung in picked.rungs]:
        return f"One budget for all texts, {picked.rungs[0].setting}: {mine}, on {tests}."
    other = f"{percent(rival.test_accuracy)} at {percent(rival.test_cost)}"
    if picked.test.accuracy_low <= rival.test_accuracy <= picked.test.accuracy_high:
        verdict = "The difference is within the 95 % interval: these figures do not tell which is more accurate."
    elif picked.test.accuracy > rival.test_accuracy:
        verdict = "**A budget for each text is more accurate** than one for all at that cost."
    else:
        verdict = "**One budget for all is more accurate** here."
    return (
        f"A budget for each text: {mine}. The best single budget of no higher cost, {rival.setting}: {other}. {verdict}"
    )
