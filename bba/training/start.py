"""The model that training starts from, and its tokenizer."""

from transformers import PreTrainedTokenizerBase

from bba.data.synthetic import TASK as SYNTHETIC
from bba.data.synthetic import synthetic_tokenizer
from bba.data.texts import TextData
from bba.data.tokenizers import train_word_tokenizer
from bba.model import BBAForSequenceClassification
from bba.model.backbones import from_pretrained, from_scratch
from bba.settings import WORD, ModelSettings


def first_model(
    texts: TextData, backbone: str, settings: ModelSettings, ffn_dial: bool
) -> tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]:
    """Return a pretrained encoder with a fresh classifier, or a fresh model with the vocabulary of the training texts.

    Raises:
        TrainingError: see `from_pretrained`.
    """
    if backbone != WORD:
        return from_pretrained(backbone, settings, texts.label_names, ffn_dial)
    if texts.task == SYNTHETIC:
        tokenizer = synthetic_tokenizer()
        tokenizer.model_max_length = settings.max_length
    else:
        tokenizer = train_word_tokenizer(texts.train.texts, settings.vocab_size, settings.max_length)
    return from_scratch(settings, len(tokenizer), texts.label_names, ffn_dial), tokenizer
