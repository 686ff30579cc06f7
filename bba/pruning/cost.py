"""Cost of a configuration in closed form: multiply-adds counted as two FLOPs, and parameters, part by part.

Only matrix products are counted, as is usual; LayerNorm, GELU, softmax and table look-ups are left out. The last layer
computes the first position only, which is all that the classifier reads.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from bba.model import BBAConfig, BudgetFormerConfig

USUAL_LENGTH = 64
"""Tokens of a text, where a share of FLOPs is given without naming a length."""


@dataclass(frozen=True)
class Cost:
    """A cost split into the model's parts (FLOPs or parameters)."""

    embeddings: int
    projections: int
    scores_and_values: int
    ffn: int
    norms: int
    classifier: int

    @property
    def attention(self) -> int:
        """The part that head budgets act on."""
        return self.projections + self.scores_and_values

    @property
    def encoder(self) -> int:
        """The part that the two budgets act on."""
        return self.attention + self.ffn

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(astuple(self))


def flops(config: BBAConfig, length: int) -> Cost:
    """Count the FLOPs of classifying one text of `length` tokens.

    Per layer with T positions read, Q of them computed, n heads of size D, width C and F neurons: query and output
    projections 2·(2·Q·C·nD), key and value projections 2·(2·T·C·nD), scores and values 2·(2·Q·T·nD), feed-forward
    2·(2·Q·C·F). Q is T but for the last layer, where it is 1.
    """
    return _flops(config, [len(kept) for kept in config.heads], length)


def chosen_flops(config: BudgetFormerConfig, heads: Sequence[int], length: int) -> Cost:
    """Count the FLOPs of a text that uses so many heads in each layer; the policies' are among the projections."""
    policies = config.num_hidden_layers * 2 * config.policy_size * (config.hidden_size + 1 + config.heads_per_layer)
    cost = _flops(config, heads, length)
    return replace(cost, projections=cost.projections + policies)


def _flops(config: BBAConfig, heads: Sequence[int], length: int) -> Cost:
    C, T = config.hidden_size, length
    widths = [count * config.head_size for count in heads]
    computed = _computed(config, T)
    return Cost(
        embeddings=0,
        projections=sum(4 * (Q + T) * C * width for Q, width in zip(computed, widths, strict=True)),
        scores_and_values=sum(4 * Q * T * width for Q, width in zip(computed, widths, strict=True)),
        ffn=sum(4 * Q * C * neurons for Q, neurons in zip(computed, config.ffn_widths, strict=True)),
        norms=0,
        classifier=2 * C * C + 2 * C * len(config.labels),
    )


def _computed(config: BBAConfig, length: int) -> list[int]:
    """Return for each layer of how many positions its output is computed."""
    return [length] * (config.num_hidden_layers - 1) + [1]


def unit_flops(config: BBAConfig, length: int = USUAL_LENGTH) -> tuple[list[int], list[int]]:
    """Return for each layer the FLOPs of one head, and of one feed-forward neuron; see `flops`."""
    C, D, T = config.hidden_size, config.head_size, length
    computed = _computed(config, T)
    return [4 * (Q + T) * C * D + 4 * Q * T * D for Q in computed], [4 * Q * C for Q in computed]


def parameters(config: BBAConfig) -> Cost:
    """Count the parameters; scores count under what they gate, one a head and one a feed-forward block."""
    C = config.hidden_size
    widths = [len(kept) * config.head_size for kept in config.heads]
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return Cost(
        embeddings=rows * C,
        projections=sum(3 * width * (C + 1) + (width + 1) * C for width in widths) + config.num_kept_heads,
        scores_and_values=0,
        ffn=sum(neurons * (C + 1) + (neurons + 1) * C for neurons in config.ffn_widths) + config.num_kept_blocks,
        norms=2 * C + 4 * C * config.num_hidden_layers,
        classifier=C * (C + 1) + (C + 1) * len(config.labels),
    )


def dense_config(config: BBAConfig) -> BBAConfig:
    """Return the configuration of the dense model that a pruned one came from."""
    return BBAConfig.from_dict({**config.to_dict(), "kept_heads": None, "kept_blocks": None})


def head_share(config: BBAConfig) -> float:
    """Return the share of the dense model's heads that is left: the achieved head budget."""
    return config.num_kept_heads / config.num_dense_heads


def block_share(config: BBAConfig) -> float:
    """Return the share of the dense model's feed-forward blocks that is left: the achieved FFN budget."""
    return config.num_kept_blocks / config.num_dense_blocks if config.num_dense_blocks else 1.0


def encoder_share(config: BBAConfig, length: int = USUAL_LENGTH) -> float:
    """Return the share of the dense encoder's FLOPs that is left for a text of `length` tokens: both dials in one."""
    return flops(config, length).encoder / flops(dense_config(config), length).encoder


def predicted_speedup(config: BBAConfig, dense: BBAConfig, length: int) -> float:
    """Return how many times fewer FLOPs `config` needs than `dense` for a text of `length` tokens."""
    return flops(dense, length).total / flops(config, length).total
