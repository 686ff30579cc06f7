"""Where a model's first weights come from."""

from collections.abc import Sequence

from bba.model.configuration import BBAConfig
from bba.model.modeling import BBAForSequenceClassification
from bba.settings import ModelSettings


def from_scratch(settings: ModelSettings, vocab_size: int, labels: Sequence[str]) -> BBAForSequenceClassification:
    """Return a model with fresh weights, drawn from torch's random generator.

    Args:
        settings: its shape.
        vocab_size: number of tokens of the tokenizer.
        labels: names of the classes.
    """
    return BBAForSequenceClassification(
        BBAConfig(
            vocab_size=vocab_size,
            hidden_size=settings.hidden_size,
            head_size=settings.hidden_size // settings.heads,
            dense_heads=[settings.heads] * settings.layers,
            ffn_sizes=[settings.ffn_size] * settings.layers,
            max_position_embeddings=settings.max_length,
            dropout=settings.dropout,
            token_dropout=settings.token_dropout,
            attention_dropout=0.0,  # With it torch leaves its fast attention on a CPU.
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
        )
    )
