"""Pieces of the Classify page that show which words an open head looks at."""

import html

import pandas as pd
import streamlit as st

from bba.attention import by_word, head_attention
from bba.ui import charts, layout
from bba.ui.state import Choice

TOP = 8
"""Words drawn as bars; all are in the CSV."""


def attention(choice: Choice, text: str) -> None:
    """Let the visitor pick a layer, an open head and a word, and show which words that word looks at."""
    if layout.is_blank(text):
        return
    st.subheader(
        "What a head looks at",
        help="Attention weights of one head of the really pruned model at this budget. They tell where the head reads, "
        "not why the label came out.",
    )
    heads = choice.classifier.at(*choice.setting).config.heads
    columns = st.columns(3)
    with columns[0]:
        layer = st.selectbox("Layer", range(len(heads)), format_func=lambda layer: _layer_name(layer, heads[layer]),
                             index=_last_open(heads), key="layer")  # fmt: skip
    if not heads[layer]:
        st.info(f"Layer {layer + 1} has no open head at budget {choice.setting}: no word looks at another there.")
        return
    with columns[1]:
        head = st.selectbox("Open head", heads[layer], format_func=lambda head: f"head {head + 1}", key=f"head_{layer}",
                            help="Heads keep the numbers that they have in the full model.")  # fmt: skip
    words, weights = by_word(head_attention(choice.classifier, text, choice.setting, layer, head))
    with columns[2]:
        place = st.selectbox("Looking from", range(len(words)), format_func=lambda place: f"{place}: {words[place]}",
                             key="word", help="The classifier reads [CLS], the first token.")  # fmt: skip
    _show(words, weights[place].tolist(), place)


def _layer_name(layer: int, heads: list[int]) -> str:
    return f"layer {layer + 1}" if heads else f"layer {layer + 1} (no open head)"


def _last_open(heads: list[list[int]]) -> int:
    """Return the layer with an open head that is next to the answer."""
    return max(layer for layer, kept in enumerate(heads) if kept)


def _show(words: list[str], weights: list[float], place: int) -> None:
    frame = pd.DataFrame({"position": range(len(words)), "word": words, "weight": weights})
    top = frame.nlargest(TOP, "weight")
    left, right = st.columns([3, 2], gap="large")
    with left, st.container(key="attention_words"):
        st.html(shaded(words, weights, place))
        st.caption(
            "The stronger the colour behind a word, the more this head looks at it; the strongest has "
            f"{max(weights):.3f} of 1. A pointer over a word shows its weight. Underlined: the word that looks. "
            "Pieces of a word are added up."
        )
    with right:
        alt = f"The {len(top)} words that are looked at most"
        layout.chart(charts.weight_bars(list(top["word"]), list(top["weight"])), frame, "attention", alt)


def shaded(words: list[str], weights: list[float], place: int) -> str:
    """Return the words as HTML, each on a ground as strong as its weight; what people typed is shown literally."""
    most = max(weights)
    spans = [
        f'<span dir="auto" title="{weight:.4f}" style="background: rgba(42, 123, 196, {0.6 * weight / most:.3f}); '
        f'padding: 0.1em 0.25em; border-radius: 0.25em;{" text-decoration: underline;" * (number == place)}">'
        f"{html.escape(word)}</span>"
        for number, (word, weight) in enumerate(zip(words, weights, strict=True))
    ]
    return f'<div style="line-height: 2; overflow-wrap: anywhere;">{" ".join(spans)}</div>'
