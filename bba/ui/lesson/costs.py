"""Steps 5 to 8: the cliff, masks against pruning, one model against many, and what each text needs."""

import numpy as np
import pandas as pd
import streamlit as st

from bba.measure.report import LatencyRow
from bba.measure.results import OURS, best_specialists, summarise
from bba.model import Setting
from bba.pruning.cost import parameters
from bba.ui import charts, layout, state
from bba.ui.lesson import facts as computing
from bba.ui.lesson import pictures, texts
from bba.ui.lesson.facts import FRESH_TEXTS, Facts
from bba.ui.lesson.question import Answer, Question, share_of_texts
from bba.ui.methods import against_specialists
from bba.ui.wording import gain, kept, percent, plain, taken_on

GOOD = 0.9
"""The accuracy below which the model counts as fallen off the cliff."""
NONE = "none of these"
FEW = 0.1
"""The budget that easy texts may be content with."""
CUT = 0.25
"""The budget at which masks and pruning are timed."""


# 5. The cliff.


def cliff_words(facts: Facts) -> str:
    """Return what step 5 says."""
    return (
        "To answer, a model has to find the question, find the words about that thing, and tell which comes last. As "
        "long as there are heads to spare for each of these, closing some costs nothing."
    )


def _below(facts: Facts) -> list[float]:
    """Return the budgets below the one that is shown before the question is answered."""
    return [stop for stop in facts.choice.stops if stop < facts.choice.setting.budget]


def cliff_picture(facts: Facts, revealed: bool) -> None:
    """Show accuracy against the budget: the upper part, and all of it once the question is answered."""
    frame = facts.accuracy_frame()
    shown = frame if revealed else frame[~frame["budget"].isin([0.0, *_below(facts)])]
    edge = _edge(facts)
    marked = edge if revealed and edge is not None else facts.choice.setting.budget
    layout.chart(charts.accuracy_line(shown, Setting(marked)), shown, "lesson_cliff", "Accuracy against head budget")
    st.caption(
        f"Counted here on {FRESH_TEXTS} at every budget that was measured, with the 95 % Wilson interval."
        + ("" if revealed else " What lies further left shows when you have guessed.")
    )


def _edge(facts: Facts) -> float | None:
    """Return the smallest budget from which on the model is good."""
    good = None
    for stop in reversed(facts.choice.stops):
        if facts.accuracy(facts.plan(stop)) < GOOD:
            break
        good = stop
    return good


def cliff_question(facts: Facts) -> Question:
    """Return the question of step 5."""
    options = [f"{stop:g}" for stop in _below(facts)]

    def answer() -> Answer:
        edge = _edge(facts)
        value = NONE if edge is None or f"{edge:g}" not in options else f"{edge:g}"
        smallest = facts.choice.stops[0]
        why = (
            f"Down to there it is right on at least {percent(GOOD)}; at budget {smallest:g}, with "
            f"{kept(facts.choice.report.row(smallest))}, on {percent(facts.accuracy(facts.plan(smallest)))}. The work "
            "cannot be thinned out for ever: once a part of it has no head left, the other parts are of little use."
        )
        return Answer(value, value, why)

    return Question(
        f"What is the smallest budget at which it is still right on {percent(GOOD)} of the texts?",
        [*options, NONE], answer, slider=True,
    )  # fmt: skip


# 6. Masks are not speed.


def speed_words(facts: Facts) -> str:
    """Return what step 6 says."""
    return (
        "There are two ways to close a head. A **mask** lets it be computed and then turns all that it gives into 0; "
        "**pruning** takes its rows and columns out of the matrices. Both give the same answers."
    )


def _cut(facts: Facts) -> float:
    return state.nearest(CUT, facts.choice.stops)


def speed_picture(facts: Facts, revealed: bool) -> None:
    """Show what there is to multiply, and the measured times once the question is answered."""
    choice, budget = facts.choice, _cut(facts)
    if revealed:
        timing = computing.timing(choice, budget)
        frame = pd.DataFrame({"way": pictures.WAYS, "median_ms": [row.median_ms for row in timing.latency.rows],
                              "iqr_ms": [row.iqr_ms for row in timing.latency.rows]})  # fmt: skip
        layout.chart(pictures.times(timing.latency), frame, "lesson_times", "Milliseconds of the three models")
        st.caption(plain(f"Timed live: {taken_on(timing.latency)}. Bars: interquartile range."))
        st.button("Measure again", key="again", icon=":material/timer:", on_click=computing.forget_timing)
        return
    whole, pruned = (parameters(model.config).projections for model in (facts.model, choice.classifier.at(budget)))
    weights = [whole, whole, pruned]  # A masked head keeps its weights: some of them are 0 now.
    frame = pd.DataFrame({"way": pictures.WAYS, "weights": weights})
    layout.chart(pictures.weights_left(weights), frame, "lesson_weights", "Attention weights of the three models")
    st.caption(f"How many weights the attention has to multiply with, at budget {budget:g}.")


def speed_question(facts: Facts) -> Question:
    """Return the question of step 6."""
    budget = _cut(facts)
    options = {(False, False): "neither", (True, False): "only masked", (False, True): "only pruned"}
    options[(True, True)] = "both"

    def answer() -> Answer:
        timing = computing.timing(facts.choice, budget)
        _, masked, pruned = timing.latency.rows

        def faster(row: LatencyRow) -> bool:
            return gain(timing.latency, row) == "faster"

        value = options[(faster(masked), faster(pruned))]
        busy = "" if faster(pruned) else " The machine may be too busy to show a gain: measure again."
        return Answer(
            value, value,
            f"Masked: {masked.speedup:.2f} times as fast as all heads ({gain(timing.latency, masked)}). Pruned: "
            f"{pruned.speedup:.2f} times ({gain(timing.latency, pruned)}; its share of the work would allow "
            f"{pruned.predicted_speedup:.2f}). Their outputs differ by at most {timing.difference:.1g}.{busy}",
        )  # fmt: skip

    return Question(
        f"At budget {budget:g} the model keeps {kept(facts.choice.report.row(budget))}. Which way is faster than all "
        "heads?",
        list(options.values()), answer,
    )  # fmt: skip


# 7. One model, many budgets.


def many_words(facts: Facts) -> str:
    """Return what step 7 says."""
    return (
        "One could train a model for each budget instead: a **specialist**, made for that number of heads alone. Ours "
        "is one set of weights for every budget. Does it pay for that in accuracy?"
    )


def _comparison() -> tuple[pd.DataFrame | None, str | None]:
    """Return the summary of the comparison on the teaching task, or in a sentence why there is none."""
    path = state.results_root() / "synthetic.csv"
    if not path.is_file():
        return None, None
    rows = state.results(path)
    if isinstance(rows, str):
        return None, rows
    summary = summarise(rows)
    if best_specialists(summary).empty:
        return None, "The results hold no specialist to compare with."
    return summary, None


def many_picture(facts: Facts, revealed: bool) -> None:
    """Show the best specialist of each budget, and the one checkpoint once the question is answered."""
    summary, problem = _comparison()
    if summary is None:
        told = plain(problem) if problem else "The specialists have not been trained yet."
        st.info(f"{told} This trains and measures them, which takes a while:", icon=":material/science:")
        st.code(
            "python -m bba compare --task synthetic --out docs/results/synthetic.csv", language="bash", wrap_lines=True
        )
        return
    best, ours = best_specialists(summary), summary[summary["method"] == OURS]
    figure = pictures.one_against_many(best, ours if revealed else None)
    frame = pd.concat([best, ours]) if revealed else best
    layout.chart(figure, frame, "lesson_many", "Accuracy against budget of specialists and of the one checkpoint")
    seeds = int(best["seeds"].max())
    st.caption(
        f"Measured by `python -m bba compare`, mean over {'1 seed' if seeds == 1 else f'{seeds} seeds'}; bars: "
        "standard deviation. The specialist of a budget is the one that is best on validation texts."
    )


def many_question(facts: Facts) -> Question | None:
    """Return the question of step 7; None where there is nothing to answer it from."""
    summary, _ = _comparison()
    if summary is None:
        return None
    best = best_specialists(summary)

    def answer() -> Answer:
        behind = int((best["difference"] > best["difference_half"].fillna(0)).sum())
        value = f"{len(best) - behind} of {len(best)}"
        return Answer(value, value, against_specialists(summary))

    options = [f"{number} of {len(best)}" for number in range(len(best) + 1)]
    return Question(
        f"At how many of the {len(best)} budgets is the one checkpoint at least as accurate as the best specialist, "
        "within the noise?", options, answer,
    )  # fmt: skip


# 8. Easy texts need few heads.


def each_words(facts: Facts) -> str:
    """Return what step 8 says."""
    return (
        "So far every text got the same budget, but texts differ: here is one, and how sure the model is of each "
        "answer at every budget. Some texts are settled by very few heads, others need more."
    )


def each_picture(facts: Facts, revealed: bool) -> None:
    """Show one text at all budgets, or what all texts need once the question is answered."""
    choice = facts.choice
    if not revealed:
        answers = state.answers(choice, texts.shown("each"))
        figure = charts.flip_chart(answers, _few(facts))
        layout.chart(figure, answers, "lesson_each", "Probability of each answer at every budget")
        return
    enough = facts.enough()
    figure, frame = pictures.needs(enough, choice.stops)
    layout.chart(figure, frame, "lesson_needs", "How many texts need which budget")
    st.caption(
        f"For each of {FRESH_TEXTS} the smallest budget from which on the answer is right and stays right. None: "
        f"{percent(float(np.isnan(enough).mean()))} are wrong even with all heads."
    )


def _few(facts: Facts) -> float:
    return state.nearest(FEW, facts.choice.stops)


def each_question(facts: Facts) -> Question:
    """Return the question of step 8."""
    few = _few(facts)

    def answer() -> tuple[float, str]:
        enough = facts.enough()
        needed = np.where(np.isnan(enough), 1.0, enough)
        return float((enough <= few).mean()), (
            f"Counted on {FRESH_TEXTS}. If each text got just what it needs, and those that are never right all there "
            f"is, the mean budget would be {needed.mean():.2f}. The catch: one has to tell which are easy. "
            + _hint(facts, few)
        )

    return share_of_texts(
        f"How many of 100 texts are content with budget {few:g}, which keeps {kept(facts.choice.report.row(few))}: "
        "right there, and at every larger budget?", answer,
    )  # fmt: skip


def _hint(facts: Facts, budget: float) -> str:
    """Return how well the model itself tells at a budget which texts need more."""
    sure, right = facts.probabilities(facts.plan(budget)).max(axis=1), facts.right(facts.plan(budget))
    if right.all() or not right.any():
        return (
            f"At budget {budget:g} all answers are {'right' if right.all() else 'wrong'}, so there is nothing to tell."
        )
    return (
        f"The model gives a hint itself: at budget {budget:g} it gives its answer a probability of "
        f"{sure[right].mean():.2f} on average where it is right, and {sure[~right].mean():.2f} where it is wrong, so a "
        "text with an unsure answer can be read again with more heads."
    )
