"""Cost of a configuration in closed form: multiply-adds counted as two FLOPs, and parameters, part by part.

Only matrix products are counted, as is usual; LayerNorm, GELU, softmax and table look-ups are left out.
"""

from dataclasses import astuple, dataclass

from bba.model import BBAConfig


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
    def total(self) -> int:
        """The sum of all parts."""
        return sum(astuple(self))


def flops(config: BBAConfig, length: int) -> Cost:
    """Count the FLOPs of classifying one text of `length` tokens.

    Per layer with n heads of size D, width C and F neurons: projections 2·T·C·3nD + 2·T·nD·C, scores and values
    2·(2·T·T·nD), feed-forward 2·(2·T·C·F).
    """
    C = config.hidden_size
    widths = [len(kept) * config.head_size for kept in config.heads]
    return Cost(
        embeddings=0,
        projections=sum(8 * length * C * width for width in widths),
        scores_and_values=sum(4 * length * length * width for width in widths),
        ffn=sum(4 * length * C * neurons for neurons in config.ffn_sizes),
        norms=0,
        classifier=2 * C * C + 2 * C * len(config.labels),
    )


def parameters(config: BBAConfig) -> Cost:
    """Count the parameters; head scores count under projections, one a head."""
    C = config.hidden_size
    widths = [len(kept) * config.head_size for kept in config.heads]
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return Cost(
        embeddings=rows * C,
        projections=sum(3 * width * (C + 1) + (width + 1) * C for width in widths) + config.num_kept_heads,
        scores_and_values=0,
        ffn=sum(neurons * (C + 1) + (neurons + 1) * C for neurons in config.ffn_sizes),
        norms=2 * C + 4 * C * config.num_hidden_layers,
        classifier=C * (C + 1) + (C + 1) * len(config.labels),
    )


def head_share(config: BBAConfig) -> float:
    """Return the share of the dense model's attention cost that is left: heads there over heads of the dense model."""
    return config.num_kept_heads / config.num_dense_heads


def predicted_speedup(config: BBAConfig, dense: BBAConfig, length: int) -> float:
    """Return how many times fewer FLOPs `config` needs than `dense` for a text of `length` tokens."""
    return flops(dense, length).total / flops(config, length).total
