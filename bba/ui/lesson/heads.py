"""Steps 1 to 4: what a head does, all of them at work, the dial, and the order in which they close."""

import numpy as np
import pandas as pd
import streamlit as st

from bba.attention import by_word, head_attention
from bba.data import synthetic
from bba.model import Setting
from bba.model.inference import logits_of
from bba.pruning.plan import Plan
from bba.pruning.surgery import prune
from bba.ui import layout, maps
from bba.ui.attending import shaded
from bba.ui.lesson import pictures, texts, training
from bba.ui.lesson.facts import FRESH_TEXTS, Facts
from bba.ui.lesson.question import Answer, Question, share_of_texts
from bba.ui.wording import percent

OTHER = "another word"
FINISHED, LIVE = "finished model", "train one now"


# 1. What a head does.


def head_words(facts: Facts) -> str:
    """Return what step 1 says."""
    layer, head = facts.last_head()
    return (
        "In these texts people take things, and a question asks for one of them: **who took it last?** A model reads "
        "with *attention heads*, parts that let one word look at others. This is what one of them, head "
        f"{head + 1} of layer {layer + 1}, looks at for the answer: the stronger the colour, the more."
    )


def _attention(facts: Facts, text: str) -> tuple[list[str], list[float]]:
    """Return the words, and how much the last head to close looks at each where the model writes its answer."""
    words, weights = by_word(head_attention(facts.choice.classifier, text, Setting(1.0), *facts.last_head()))
    return words, weights[0].tolist()


def head_picture(facts: Facts, revealed: bool) -> None:
    """Show what the head looks at, in a text of the visitor's choice or, once it is answered, in the question's."""
    text, _ = texts.example("asked") if revealed else texts.now_shown("head")
    words, weights = _attention(facts, text)
    with st.container(key="lesson_attention", border=True):
        st.html(shaded(words, weights, 0))
    st.caption(
        "Attention weights of the real model, looking from its first position, [CLS], where the answer is read off. "
        f"The strongest is {max(weights):.2f} of 1."
    )
    if not revealed:
        texts.next_button("head")


def _candidates(text: str) -> list[str]:
    """Return the words about the thing that a text asks for, in the order of the text."""
    asked = next(word[:-1] for word in text.split() if word.endswith("?"))
    return [word for word in text.split() if word.endswith(f":{asked}")]


def head_question(facts: Facts) -> Question:
    """Return the question of step 1."""
    text, _ = texts.example("asked")
    candidates = _candidates(text)

    def answer() -> Answer:
        words, weights = _attention(facts, text)
        most = words[int(np.argmax(weights))]
        option = most if most in candidates else OTHER
        why = f"It gives {max(weights):.2f} of its attention, of 1 in all, to this word. "
        if most == candidates[-1]:
            why += "Nobody takes the thing after that: the head has found the word that holds the answer."
        else:
            why += f"The answer stands in **{candidates[-1]}**: finding it is the work of several heads together."
        return Answer(option, option, why)

    return Question(
        f"The same head reads this text: `{text}` Which word will it look at most?", [*candidates, OTHER], answer
    )


# 2. All heads on.


def all_words(facts: Facts) -> str:
    """Return what step 2 says."""
    config = facts.model.config
    return (
        f"The model has {config.num_dense_heads} such heads in {config.num_hidden_layers} layers. With all of them on "
        f"it is right on **{percent(facts.accuracy(facts.plan(1.0)))}** of {FRESH_TEXTS}, counted by this server."
    )


def all_picture(facts: Facts, revealed: bool) -> None:
    """Show the answer with all heads; once the question is answered, without any as well."""
    text = texts.shown("all")
    given = {"all heads": facts.choice.classifier.predict([text], 1.0)[0].probabilities}
    if revealed:
        given["no heads"] = _without_attention(facts, text)
    frame = pd.DataFrame(given).rename_axis("label").reset_index()
    layout.chart(pictures.answers_of(given), frame, "lesson_answers", "Probability of each of the four people")


def _without_attention(facts: Facts, text: str) -> dict[str, float]:
    classifier = facts.choice.classifier
    pruned = prune(facts.model, facts.plan(0.0), share=True).eval()
    shares = logits_of(pruned, [classifier.encode([text])[0].ids]).softmax(dim=-1)[0]
    return dict(zip(classifier.labels, shares.tolist(), strict=True))


def all_question(facts: Facts) -> Question:
    """Return the question of step 2."""

    def answer() -> tuple[float, str]:
        share = facts.accuracy(facts.plan(0.0))
        return share, (
            f"Without heads no word can look at another: of {FRESH_TEXTS} it gets {percent(share)} right. Naming one "
            f"of {len(synthetic.PEOPLE)} people blindly gets {percent(1 / len(synthetic.PEOPLE))}."
        )

    return share_of_texts(
        "Take **every** head out and leave the rest of the model. On how many of 100 texts is it still right?", answer
    )


# 3. The dial.


def dial_words(facts: Facts) -> str:
    """Return what step 3 says."""
    return (
        "Heads cost time. The **head budget** is a dial: the share of the heads that we pay for. Move it: heads that "
        "it does not pay for are closed, and the same model goes on with the rest."
    )


def _map(facts: Facts, plan: Plan, title: str) -> None:
    classifier = facts.choice.classifier
    frame = maps.unit_frame(classifier.opening_budgets(), classifier.opening_ffn_budgets(), plan)
    layout.chart(maps.unit_map(frame, title), frame, "lesson_map", f"Map of attention heads. {title}.")


def dial_picture(facts: Facts, revealed: bool) -> None:
    """Show a dial and the heads that are open at it."""
    choice = facts.choice
    budget = st.select_slider(
        "Head budget", choice.stops, value=choice.stops[-1], key="dial", bind="query-params",
        help="1 keeps every head, 0.25 a quarter of them.",
    )  # fmt: skip
    plan = facts.plan(budget)
    _map(facts, plan, f"Budget {budget:g}: {plan.num_heads} of {facts.model.config.num_dense_heads} heads open")
    st.caption("Filled: open. Dotted: closed, its weights are cut out. The number is the budget that opens it.")
    text = texts.shown("dial")
    prediction = choice.classifier.predict([text], budget)[0]
    st.markdown(
        f"At budget {budget:g} the model answers **{prediction.label}**, with probability {prediction.probability:.2f}."
    )


def dial_question(facts: Facts) -> Question:
    """Return the question of step 3."""
    budget = facts.choice.setting.budget

    def answer() -> tuple[float, str]:
        changed = float((facts.answers(facts.plan(budget)) != facts.answers(facts.plan(1.0))).mean())
        return changed, (
            f"Of {FRESH_TEXTS}, {percent(changed)} get another answer at budget {budget:g} than with all heads. One "
            "model serves both: nothing is trained anew when the dial is turned."
        )

    return share_of_texts(
        f"Turn the dial from 1 to {budget:g}. On how many of 100 texts does the answer change?", answer
    )


# 4. Which heads close first.


def order_words(facts: Facts) -> str:
    """Return what step 4 says."""
    return (
        "Heads close in an order that the model has **learned**: the number in a box is the budget that opens the "
        f"head, so the largest closes first. Choose *{LIVE}* to watch a small model learn such an order."
    )


def order_picture(facts: Facts, revealed: bool) -> None:
    """Show the order of the finished model, or the training of another."""
    shown = st.segmented_control(
        "Show", [FINISHED, LIVE], default=FINISHED, required=True, key="show", bind="query-params",
        label_visibility="collapsed",
    )  # fmt: skip
    if shown == LIVE:
        training.watch()
    elif revealed:
        closed = _quarter(facts)
        _map(facts, facts.wrong_plan(closed), f"The {closed} that would stay longest, closed")
    else:
        _map(facts, facts.plan(1.0), f"All {facts.model.config.num_dense_heads} heads open")


def _quarter(facts: Facts) -> int:
    """Return a quarter of the heads."""
    return max(1, facts.model.config.num_dense_heads // 4)


def order_question(facts: Facts) -> Question:
    """Return the question of step 4."""
    closed, total = _quarter(facts), facts.model.config.num_dense_heads

    def answer() -> tuple[float, str]:
        share, own = facts.accuracy(facts.wrong_plan(closed)), facts.accuracy(facts.plan((total - closed) / total))
        return share, (
            f"Right on {percent(share)} of {FRESH_TEXTS}. With as many heads closed in the learned order it is right "
            f"on {percent(own)}: it matters **which** heads go, not only how many."
        )

    return share_of_texts(
        f"Close {closed} of the {total} heads, but the **wrong** ones: those that the model would keep longest. On how "
        "many of 100 texts is it still right?", answer,
    )  # fmt: skip
