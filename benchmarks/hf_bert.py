"""A dense checkpoint's weights in Hugging Face's own class, so that both are as accurate and only speed differs."""

from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from bba.errors import CheckpointError
from bba.model import BBAConfig, SequenceClassifier
from bba.model.backbones import EMBEDDINGS, FAMILIES, QKV

BERT = FAMILIES["bert"]


def to_bert(model: SequenceClassifier) -> BertForSequenceClassification:
    """Return a Hugging Face model that computes what a dense model of ours computes.

    The gates' scores have no place there, and none is needed: dense means that all of them are open.

    Raises:
        CheckpointError: Hugging Face's BERT cannot hold it, as it has one number of heads and neurons for all layers.
    """
    bert, ours = BertForSequenceClassification(_bert_config(model.config)), model.state_dict()
    theirs = {f"bert.embeddings.{name}": ours[f"encoder.embeddings.{own}"] for own, name in EMBEDDINGS.items()}
    for kind in ("weight", "bias"):
        theirs[f"bert.pooler.dense.{kind}"] = ours[f"encoder.pooler.{kind}"]
        theirs[f"classifier.{kind}"] = ours[f"classifier.{kind}"]
        for layer in range(model.config.num_hidden_layers):
            theirs |= _layer(ours, layer, kind)
    bert.load_state_dict(bert.state_dict() | theirs)
    return bert.eval()


def _layer(ours: dict[str, Tensor], layer: int, kind: str) -> dict[str, Tensor]:
    """Return the weights or the biases of a layer under Hugging Face's names."""
    own, prefix = f"encoder.layers.{layer}.", f"bert.{BERT.layer.format(layer)}"
    parts = dict(zip(QKV, ours[f"{own}attention.qkv.{kind}"].chunk(3), strict=True))
    parts |= {name: ours[f"{own}{name}.{kind}"] for name in BERT.modules if name not in QKV}
    return {f"{prefix}{BERT.modules[name]}.{kind}": tensor for name, tensor in parts.items()}


def _bert_config(config: BBAConfig) -> BertConfig:
    heads, neurons = {len(kept) for kept in config.heads}, set(config.ffn_widths)
    if len(heads) > 1 or len(neurons) > 1 or max(heads) * config.head_size != config.hidden_size:
        raise CheckpointError(
            f"Hugging Face's BERT cannot hold layers of {sorted(heads)} heads and {sorted(neurons)} neurons: give an "
            "unpruned checkpoint."
        )
    return BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=max(heads),
        intermediate_size=max(neurons),
        max_position_embeddings=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        layer_norm_eps=config.layer_norm_eps,
        pad_token_id=config.pad_token_id,
        id2label=dict(enumerate(config.labels)),
        label2id={label: number for number, label in enumerate(config.labels)},
    )
