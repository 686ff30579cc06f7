"""The configurations: they alone decide every shape, so a pruned model is the same class with smaller numbers."""

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig


@strict
class BBAConfig(PreTrainedConfig):
    """Shapes of a BERT-compatible encoder with a list of attention heads, and of feed-forward blocks, per layer.

    Heads and blocks keep the numbers they had in the dense model: `kept_heads[l]` lists the heads that layer `l` still
    has, out of `dense_heads[l]`. Everything that depends on a budget counts against the dense model.

    Args:
        vocab_size: number of tokens.
        hidden_size: width of the residual stream.
        head_size: width of one head; fixed by the dense model, never by what is left of it.
        dense_heads: number of heads per layer in the dense model; its length is the number of layers.
        kept_heads: for each layer, the numbers of the heads that are there, ascending. Default: all of them.
        ffn_sizes: number of feed-forward neurons per layer in the dense model.
        ffn_block: neurons per block, the unit of the FFN budget; 0 for a model that has no FFN dial.
        kept_blocks: for each layer, the numbers of the blocks that are there, ascending. Default: all of them.
        max_position_embeddings: longest input in tokens.
        type_vocab_size: number of segment types (BERT has 2).
        dropout: probability used on embeddings, sub-layer outputs and the pooled vector in training.
        token_dropout: probability of hiding a whole token, [CLS] excepted, in training.
        attention_dropout: probability used on attention weights in training.
        layer_norm_eps: epsilon of every LayerNorm.
        initializer_range: standard deviation of fresh weights.
        pad_token_id: the token that stands for "nothing here".
    """

    model_type = "bba"

    vocab_size: int = 30522
    hidden_size: int = 128
    head_size: int = 16
    dense_heads: list[int] | tuple[int, ...] = (8, 8, 8, 8)
    kept_heads: list[list[int]] | None = None
    ffn_sizes: list[int] | tuple[int, ...] = (512, 512, 512, 512)
    ffn_block: int = 0
    kept_blocks: list[list[int]] | None = None
    max_position_embeddings: int = 128
    type_vocab_size: int = 2
    dropout: float = 0.1
    token_dropout: float = 0.0
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0

    def __post_init__(self, **kwargs: object) -> None:
        if self.kept_heads is None:
            self.kept_heads = [list(range(count)) for count in self.dense_heads]
        if self.kept_blocks is None:
            self.kept_blocks = [list(range(count)) for count in self.dense_blocks]
        super().__post_init__(**kwargs)

    def validate_layers(self) -> None:
        """Check that the per-layer lists agree with each other."""
        lists = {"dense_heads": self.dense_heads, "kept_heads": self.heads, "ffn_sizes": self.ffn_sizes}
        lists["kept_blocks"] = self.blocks
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1 or not self.dense_heads:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"The lists name other numbers of layers ({found}); expected the same, at least one.")
        if self.ffn_block and any(size % self.ffn_block for size in self.ffn_sizes):
            raise ValueError(f"ffn_sizes is {self.ffn_sizes}; expected multiples of the ffn_block {self.ffn_block}.")
        for name, kept, dense in (
            ("kept_heads", self.heads, self.dense_heads),
            ("kept_blocks", self.blocks, self.dense_blocks),
        ):
            for layer, (numbers, count) in enumerate(zip(kept, dense, strict=True)):
                if sorted(set(numbers)) != list(numbers) or any(not 0 <= number < count for number in numbers):
                    raise ValueError(f"{name}[{layer}] is {numbers}; expected ascending numbers from 0 to {count - 1}.")

    def validate_sizes(self) -> None:
        """Check that no size is zero or negative, and that padding is a token."""
        for name in ("vocab_size", "hidden_size", "head_size", "max_position_embeddings", "type_vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if self.ffn_block < 0:
            raise ValueError(f"ffn_block is {self.ffn_block}; expected 0, for no FFN dial, or more.")
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id is {self.pad_token_id}; expected one of the {self.vocab_size} tokens.")

    @property
    def heads(self) -> list[list[int]]:
        """The heads each layer still has, by their numbers in the dense model."""
        return self.kept_heads or []

    @property
    def dense_blocks(self) -> list[int]:
        """Number of feed-forward blocks per layer in the dense model; 0 where there is no FFN dial."""
        return [size // self.ffn_block if self.ffn_block else 0 for size in self.ffn_sizes]

    @property
    def blocks(self) -> list[list[int]]:
        """The feed-forward blocks each layer still has, by their numbers in the dense model."""
        return self.kept_blocks or []

    @property
    def ffn_widths(self) -> list[int]:
        """Number of feed-forward neurons each layer still has."""
        if not self.ffn_block:
            return list(self.ffn_sizes)
        return [len(kept) * self.ffn_block for kept in self.blocks]

    @property
    def labels(self) -> list[str]:
        """Names of the classes."""
        return [str(label) for label in (self.id2label or {}).values()]

    @property
    def num_hidden_layers(self) -> int:
        """Number of Transformer layers."""
        return len(self.dense_heads)

    @property
    def num_dense_heads(self) -> int:
        """Number N of heads of the dense model, against which a budget is counted."""
        return sum(self.dense_heads)

    @property
    def num_kept_heads(self) -> int:
        """Number of heads that are there."""
        return sum(len(kept) for kept in self.heads)

    @property
    def num_dense_blocks(self) -> int:
        """Number of feed-forward blocks of the dense model, against which an FFN budget is counted."""
        return sum(self.dense_blocks)

    @property
    def num_kept_blocks(self) -> int:
        """Number of feed-forward blocks that are there."""
        return sum(len(kept) for kept in self.blocks)


@strict
class BudgetFormerConfig(BBAConfig):
    """Shapes of a dense encoder, with as many heads in every layer, and of the policies that choose among them.

    Args:
        policy_size: width of the one inner layer of a policy.
    """

    model_type = "budgetformer"

    policy_size: int = 32

    def validate_choice(self) -> None:
        """Check that all heads are there for the policies to choose from."""
        whole = [list(range(count)) for count in self.dense_heads]
        if len(set(self.dense_heads)) != 1 or self.heads != whole or not self.heads_per_layer:
            raise ValueError(
                f"kept_heads is {self.heads} of {self.dense_heads}; expected all, and as many in every layer."
            )
        if self.ffn_block:
            raise ValueError(f"ffn_block is {self.ffn_block}; expected 0: a BudgetFormer has no FFN dial.")
        if self.policy_size < 1:
            raise ValueError(f"policy_size is {self.policy_size}; expected at least 1.")

    @property
    def heads_per_layer(self) -> int:
        """Number H of heads that a policy chooses from."""
        return self.dense_heads[0]


for _kind in (BBAConfig, BudgetFormerConfig):
    AutoConfig.register(_kind.model_type, _kind)  # AutoTokenizer reads a folder's configuration too.
