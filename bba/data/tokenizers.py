"""The word-level tokenizer of models that are trained from scratch."""

from collections.abc import Iterable

import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bba.errors import DataError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""Their ids are 0, 1, 2, 3."""


def _entity(*names: str) -> str:
    """Return the pattern of an HTML entity, whole or with a space where its "&" was: "&#39;" or " #39;"."""
    return rf"(?:&|\s|^)(?:{'|'.join(names)});"


REPAIRS = (
    # News texts come with HTML in all states of decay. The repair lives in the tokenizer, so that it is the same for
    # texts people type: "world #39;s", "world&#39;s" and "world's" are the same tokens.
    (_entity("amp", "#0?38"), "&"),
    (_entity("#39", "apos", "[lr]squo", "#14[56]", "#821[67]") + "|[‘’]", "'"),  # noqa: RUF001
    (_entity("quot", "#34", "[lr]dquo", "#14[78]", "#822[01]") + "|[“”]", '"'),
    (_entity("lt", "#60"), "<"),
    (_entity("gt", "#62"), ">"),
    (_entity("#36"), "$"),
    (_entity("hellip", "#8230", "#133") + "|…", "..."),
    (_entity("[mn]dash", "#15[01]", "#821[12]") + "|[–—]", "-"),  # noqa: RUF001
    (_entity("nbsp", "#160"), " "),
    (r"(?i)</?(?:a|b|br|em|font|i|img|p|span|strong|u)\b[^<>]*>", " "),
    (r"\\", " "),  # A line break, in AG News.
)
"""Pattern and replacement, in order, before letters are lowered and accents dropped."""


def train_word_tokenizer(
    texts: Iterable[str], vocab_size: int, max_length: int, min_frequency: int = 2
) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer whose vocabulary is the most frequent words of `texts`; equal words give an equal tokenizer.

    Args:
        texts: the training texts, in any order.
        vocab_size: largest number of tokens, the four special ones included.
        max_length: longest input in tokens, [CLS] and [SEP] included; `truncation=True` cuts there.
        min_frequency: how often a word must occur to be in the vocabulary.

    Raises:
        DataError: no word occurs often enough.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    repairs = [normalizers.Replace(Regex(pattern), replacement) for pattern, replacement in REPAIRS]
    tokenizer.normalizer = normalizers.Sequence([*repairs, normalizers.BertNormalizer(strip_accents=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() == len(SPECIAL_TOKENS):
        raise DataError(
            f"No word occurs {min_frequency} times in the training texts, so there is nothing to learn from: "
            "give more texts."
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return _wrap(tokenizer, max_length)


def _wrap(tokenizer: Tokenizer, max_length: int) -> transformers.PreTrainedTokenizerFast:
    pad, unknown, first, separator = SPECIAL_TOKENS
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        unk_token=unknown,
        cls_token=first,
        sep_token=separator,
        padding_side="right",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )


def unknown_share(tokenizer: transformers.PreTrainedTokenizerBase, text: str) -> float:
    """Return the share in [0, 1] of the text's tokens, as far as the model reads, that the tokenizer does not know."""
    ids = tokenizer(text, add_special_tokens=False, truncation=True)["input_ids"]
    return ids.count(tokenizer.unk_token_id) / len(ids) if ids else 0.0
