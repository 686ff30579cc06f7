"""Pieces of the Inputs page: a budget for each text, and why it got that one."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from bba.data import synthetic
from bba.measure.ladder import Ladder, Routing
from bba.predict import Prediction
from bba.ui import budget, dials, input_charts, layout
from bba.ui.examples import examples
from bba.ui.state import Choice
from bba.ui.wording import count, kept, notices, percent, plain

MANY = 200
"""Texts that are classified at once at most."""
FRESH = 60
"""Texts of the teaching task that are made to look at."""


def routing(choice: Choice) -> Routing:
    """Say what the page is about and return what is known of the checkpoint's budgets per text; stop if nothing is."""
    st.subheader("A budget for each text")
    st.markdown(
        "An easy text does not need what a hard one needs. Each text is tried at a small budget first; only while the "
        "model is not sure enough, a larger one follows."
    )
    found = choice.report.routing
    if found is None:
        _none(choice)
        st.stop()
    return found


def ladder(choice: Choice, known: Routing) -> Ladder:
    """Show the page's dial and return the budgets that texts climb at what it is set to."""
    costs = [round(one.validation.cost, 4) for one in known.ladders]
    usual = known.ladders.index(choice.classifier.ladder())
    picked = known.ladders[costs.index(dials.mean_cost(costs, costs[usual]))]
    st.caption(_meaning(picked))
    return picked


def _none(choice: Choice) -> None:
    st.info(
        f"{plain(choice.folder.name)} has no budgets per text"
        + (": a pruned checkpoint keeps one budget." if choice.report.parent else " yet. Choose them once:"),
        icon=":material/alt_route:",
    )
    if not choice.report.parent:
        st.code(f"python -m bba calibrate {choice.folder}", language="bash")


def _meaning(picked: Ladder) -> str:
    if len(picked.rungs) == 1:
        return f"At this cost nothing beat the same budget for every text: {picked.rungs[0].setting}."
    first, *more = (str(rung.setting) for rung in picked.rungs)
    return (
        f"Each text starts at budget {first} and goes on to {', then to '.join(more)}, as long as the probability of "
        "its label is below a threshold. Budgets and thresholds were chosen on validation texts."
    )


def one_text(choice: Choice, picked: Ladder) -> None:
    """Show a text's way up: what was tried, why it stayed, its heads, and what it saved."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        text = layout.text_box(choice, "inputs")
        layout.example_picker(choice, "inputs")
    with right, st.container(key="way"):
        if layout.is_blank(text):
            st.info("Nothing to classify yet: type or paste a text.", icon=":material/edit:")
            return
        (answer,) = _classified(choice, picked, [text])
        for notice in notices(text, answer):
            st.warning(plain(notice), icon=":material/info:")
        _way(choice, answer)
    budget.unit_map(choice.at(answer.tried[-1].rung.setting))


def _classified(choice: Choice, picked: Ladder, texts: Sequence[str]) -> list[Prediction]:
    return choice.classifier.predict(texts, "auto", target_cost=picked.validation.cost)


def _way(choice: Choice, answer: Prediction) -> None:
    steps = answer.tried
    stayed = steps[-1].rung.setting
    saved = 1 - answer.encoder_cost
    st.markdown(
        f"### {plain(answer.label)}\n"
        f"It stayed at budget **{stayed}** ({kept(choice.at(stayed).row)}). It cost "
        f"{percent(answer.encoder_cost)} of the dense encoder: "
        + (f"**{percent(saved)} saved**." if saved > 0 else "nothing was saved, as smaller budgets were tried first.")
    )
    frame = input_charts.steps_frame(steps)
    alt = f"Probability of the answer at each of {len(steps)} budgets tried, with the threshold to stay"
    layout.chart(input_charts.steps_chart(frame), frame, "steps", alt)
    st.caption(_why(answer))


def _why(answer: Prediction) -> str:
    """Return in words why a text stayed where it did."""
    steps = answer.tried
    last = steps[-1]
    if not last.rung.threshold:
        reason = "it is the last one, where every text stays"
    else:
        reason = f"its probability {last.probability:.3f} is at least the {last.rung.threshold:.3f} asked there"
    earlier = " Grey: it went on, being less sure than the orange line asks." if len(steps) > 1 else ""
    return f"Blue: here it stayed, because {reason}.{earlier}"


def many_texts(choice: Choice, picked: Ladder) -> None:
    """Classify several texts at once and show which were easy and which were hard."""
    st.subheader("Easy and hard texts", help="Easy is what stays at a small budget; hard is what goes on.")
    synthetic_task = choice.report.task == synthetic.TASK
    start = "\n".join(examples(choice.report.task))
    with st.expander("Texts to compare, one a line", key="own_lines"):
        typed = st.text_area(
            "Texts", value="" if synthetic_task else start, key=f"lines_{choice.report.task}", height=160,
            placeholder="One text a line", label_visibility="collapsed",
        )  # fmt: skip
    texts = [line for line in typed.splitlines() if not layout.is_blank(line)]
    truths: list[str] = []
    if synthetic_task and not texts:
        made = synthetic.synthetic_split(FRESH, "app/inputs")
        texts, truths = made.texts, [synthetic.PEOPLE[label] for label in made.labels]
        st.caption(f"{FRESH} fresh texts of the teaching task, with their true labels. Or type your own above.")
    if not texts:
        st.info("Type or paste some texts above, one a line, and see which of them are hard.", icon=":material/edit:")
        return
    if len(texts) > MANY:
        st.caption(f"The first {MANY} of {count(len(texts))} texts; for more, use `python -m bba predict --input`.")
    _ranked(_classified(choice, picked, texts[:MANY]), truths)


def _ranked(answers: Sequence[Prediction], truths: Sequence[str]) -> None:
    frame = pd.DataFrame(
        {
            "text": [answer.text for answer in answers],
            "label": [answer.label for answer in answers],
            **({"true label": truths} if truths else {}),
            "budget": [str(answer.tried[-1].rung.setting) for answer in answers],
            "cost": [answer.encoder_cost for answer in answers],
            "sure at first": [answer.tried[0].probability for answer in answers],
        }
    ).sort_values(["cost", "sure at first"], ascending=[False, True], ignore_index=True)
    cost = frame["cost"].mean()
    st.markdown(f"{count(len(frame))} texts, the hardest first; together they cost {percent(cost)} of the dense model.")
    share = st.column_config.ProgressColumn
    with st.container(key="ranked"):
        st.dataframe(
            frame, hide_index=True, height="auto" if len(frame) <= 8 else 320,
            column_config={
                "text": st.column_config.TextColumn(width="large"),
                "budget": st.column_config.TextColumn("stayed at", help="The budget that gave the answer."),
                "cost": share(format="percent", min_value=0, max_value=1,
                              help="Of the dense encoder's floating-point operations; all that was tried counts."),
                "sure at first": share(format="percent", min_value=0, max_value=1,
                                       help="Probability of the answer at the first budget that was tried."),
            },
        )  # fmt: skip
