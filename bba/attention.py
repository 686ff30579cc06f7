"""What one attention head looks at: its weights over the tokens, and over the words, of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bba.errors import BudgetError
from bba.model import Setting
from bba.predict import BudgetedClassifier, readable


@dataclass(frozen=True)
class HeadAttention:
    """The attention weights of one head over one text."""

    tokens: list[str]
    """The tokens read, each as the text has it; those that the model adds, such as [CLS], by their names."""
    words: list[int]
    """For each token the number of the word it is a piece of, counted from 0; an added token is a word of its own."""
    unknown: list[bool]
    """For each token whether the tokenizer does not know it, so that the model reads a stand-in."""
    weights: Tensor
    """Shape (T, T): row i tells how much position i looks at each position; it adds up to 1."""


def head_attention(classifier: BudgetedClassifier, text: str, setting: Setting, layer: int, head: int) -> HeadAttention:
    """Return what an open head looks at, in the model that was really pruned to a setting.

    Args:
        classifier: a checkpoint.
        text: what it reads; what is beyond its longest input is left out.
        setting: head budget and FFN budget.
        layer: from 0.
        head: its number in the dense model, from 0: one of `classifier.at(*setting).config.heads[layer]`.

    Raises:
        BudgetError: the budgets cannot be served, or this head is not open at them.
    """
    model = classifier.at(*setting)
    open_heads = model.config.heads[layer] if 0 <= layer < len(model.config.heads) else []
    if head not in open_heads:
        raise BudgetError(
            f"Head {head} of layer {layer} is not open at budget {setting}: open in this layer are "
            f"{', '.join(map(str, open_heads)) or 'none'}."
        )
    ids = classifier.encode([text])[0].ids
    with torch.inference_mode():
        attentions = model(torch.tensor([ids]), output_attentions=True).attentions
    tokens, words = _read(classifier, text, ids)
    unknown = [token == classifier.checkpoint.tokenizer.unk_token_id for token in ids]
    return HeadAttention(tokens, words, unknown, attentions[layer][0, open_heads.index(head)])


def _read(classifier: BudgetedClassifier, text: str, ids: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the tokens as the text has them, and the word each belongs to."""
    tokenizer = classifier.checkpoint.tokenizer
    text = readable(text)  # As it was encoded.
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    # A text that is too long loses tokens before the last one, which the model always reads.
    places = [*range(len(ids) - 1), len(encoded["input_ids"]) - 1]
    names = tokenizer.convert_ids_to_tokens(list(ids))
    pieces, spans = encoded.word_ids(0), encoded["offset_mapping"]
    tokens, words = [], [-1]
    for before, name, place in zip([None, *places], names, places, strict=False):
        start, end = spans[place]
        tokens.append(text[start:end] or name)
        joined = before is not None and pieces[place] is not None and pieces[place] == pieces[before]
        words.append(words[-1] if joined else words[-1] + 1)
    return tokens, words[1:]


def by_word(attention: HeadAttention) -> tuple[list[str], Tensor]:
    """Return the words, and how much each word looks at each, shape (W, W): pieces of a word taken together.

    A word is looked at as much as all its pieces are, and looks as its pieces do on average, so rows add up to 1.
    """
    count = attention.words[-1] + 1
    words = [""] * count
    for token, word in zip(attention.tokens, attention.words, strict=True):
        words[word] += token
    belongs = torch.nn.functional.one_hot(torch.tensor(attention.words), count).to(attention.weights.dtype)  # (T, W)
    weights = belongs.T @ attention.weights @ belongs
    return words, weights / belongs.sum(dim=0)[:, None]
