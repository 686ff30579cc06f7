"""The teaching task: who took the thing last? Made from a seed; a person can read a text and say the label.

In a text, people take things, one after the other, with filler words strewn in; a question asks for one thing:

    hat? tom:ball leo:hat mia:hat um mia:ball tom:hat zoe:ball oh zoe:hat leo:ball  ->  zoe

Every person takes every mentioned thing exactly once and only the question says which thing counts. So which words
occur tells nothing about the label: a bag of words, and a model without attention, stay at chance (one in four). To
answer, a model has to find the question, find the words about that thing, and tell which of them comes last: more than
one head, in more than one layer, wherever the words stand and however many fillers are between them.
"""

import random
from collections.abc import Iterator
from itertools import islice, product

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from bba.data.texts import Split, TextData

TASK = "synthetic"
PEOPLE = ("leo", "mia", "tom", "zoe")
"""The labels."""
THINGS = ("ball", "book", "drum", "hat", "key", "map")
FILLERS = ("and", "but", "oh", "so", "then", "um", "well", "yes")
THINGS_PER_TEXT = 3
MAX_FILLERS = 8
MAX_LENGTH = 32
"""Tokens: 12 takings, one question, at most 8 fillers, [CLS] and [SEP] make 23."""


def make_example(rng: random.Random) -> tuple[str, int]:
    """Return a text and its label, an index into PEOPLE."""
    things = rng.sample(THINGS, THINGS_PER_TEXT)
    takings = list(product(PEOPLE, things))
    rng.shuffle(takings)
    asked = rng.choice(things)
    last = next(person for person, thing in reversed(takings) if thing == asked)
    words = [f"{person}:{thing}" for person, thing in takings]
    words.insert(rng.choice((0, len(words))), f"{asked}?")
    for _ in range(rng.randint(0, MAX_FILLERS)):
        words.insert(rng.randint(0, len(words)), rng.choice(FILLERS))
    return " ".join(words), PEOPLE.index(last)


def examples(count: int, seed: int | str) -> Iterator[tuple[str, int]]:
    """Yield `count` texts with their labels; equal seeds give equal examples."""
    rng = random.Random(f"who took it last/{seed}")
    return islice(iter(lambda: make_example(rng), None), count)


def synthetic_split(count: int, seed: int | str) -> Split:
    """Return `count` fresh examples; equal seeds give equal examples."""
    texts, labels = zip(*examples(count, seed), strict=True)
    return Split(list(texts), list(labels))


def synthetic_data(seed: int) -> TextData:
    """Return 60 000 training, 2 000 validation and 10 000 test examples made from a seed."""
    return TextData(
        task=TASK,
        label_names=PEOPLE,
        train=synthetic_split(60_000, f"{seed}/train"),
        validation=synthetic_split(2_000, f"{seed}/validation"),
        test=synthetic_split(10_000, f"{seed}/test"),
        source="made by bba.data.synthetic",
        licence="Generated text; free to use.",
    )


def synthetic_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of this task: one token a word, split at blanks."""
    words = [f"{person}:{thing}" for person, thing in product(PEOPLE, THINGS)] + [f"{thing}?" for thing in THINGS]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, *FILLERS]
    tokenizer = Tokenizer(models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_LENGTH,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "attention_mask"],
    )
