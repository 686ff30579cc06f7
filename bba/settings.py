"""Settings of runs: plain values, checked where they are made."""

from dataclasses import dataclass, field

from bba.errors import TrainingError


@dataclass(frozen=True)
class ModelSettings:
    """Shape of a model that is trained from scratch."""

    hidden_size: int = 160
    """Width of the residual stream."""
    layers: int = 4
    """Number of Transformer layers."""
    heads: int = 8
    """Attention heads per layer."""
    ffn_size: int = 256
    """Feed-forward neurons per layer."""
    max_length: int = 128
    """Longest input in tokens; longer texts are cut."""
    vocab_size: int = 20_000
    """Largest number of words in the vocabulary."""
    dropout: float = 0.2
    """Dropout probability of embeddings, sub-layer outputs and the pooled vector in training."""
    token_dropout: float = 0.15
    """Probability of hiding a word in training: it keeps a model from learning its training texts by heart."""

    def __post_init__(self) -> None:
        for name, smallest in {"hidden_size": 1, "layers": 1, "heads": 1, "ffn_size": 1, "max_length": 4}.items():
            if getattr(self, name) < smallest:
                raise TrainingError(f"--model.{name} is {getattr(self, name)}: give at least {smallest}.")
        for name in ("dropout", "token_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise TrainingError(f"--model.{name} is {getattr(self, name)}: give a number from 0 to below 1.")
        if self.hidden_size % self.heads:
            raise TrainingError(
                f"--model.hidden_size {self.hidden_size} cannot be shared by --model.heads {self.heads}: "
                "give a hidden size that is a multiple of the number of heads."
            )


@dataclass(frozen=True)
class StageSettings:
    """One training stage."""

    epochs: float
    """Passes over the training texts."""
    learning_rate: float
    """Peak learning rate of the weights; it rises over the first steps and then falls linearly to zero."""

    def __post_init__(self) -> None:
        if not self.epochs > 0 or not self.learning_rate > 0:
            raise TrainingError(
                f"A stage of {self.epochs} epochs at learning rate {self.learning_rate} does nothing: "
                "give positive numbers for both."
            )


@dataclass(frozen=True)
class TrainSettings:
    """How a budgeted classifier is trained: dense warm start, then soft gates, then hard gates."""

    dense: StageSettings = field(default_factory=lambda: StageSettings(5, 1e-3))
    """Stage 1: the full model, no gates. The epoch best on validation is kept."""
    soft: StageSettings = field(default_factory=lambda: StageSettings(2, 5e-4))
    """Stage 2: gates between 0 and 1 at a budget drawn anew at every step."""
    hard: StageSettings = field(default_factory=lambda: StageSettings(4, 5e-4))
    """Stage 3: gates of exactly 0 or 1, so that pruning costs nothing."""
    batch_size: int = 64
    """Texts per step."""
    score_learning_rate: float = 0.02
    """Learning rate of the head scores."""
    min_budget: float = 0.05
    """Smallest budget that training draws."""
    distill_weight: float = 0.5
    """Weight of the dense teacher's soft labels against the true labels, in [0, 1]."""
    distill_temperature: float = 2.0
    """Temperature T of the soft labels."""
    weight_decay: float = 0.01
    """AdamW weight decay of the matrices."""
    min_steps: int = 300
    """Fewest steps of a stage: a small file is gone through more often than the stage's epochs say."""
    save_every: int = 500
    """Steps between saved states of the gate stages, the most a stopped run loses; the dense one saves every epoch."""
    seed: int = 0
    """Seed of everything random: split, fresh weights, data order, budgets, dropout."""

    def __post_init__(self) -> None:
        if not 0 < self.min_budget <= 1:
            raise TrainingError(f"--training.min_budget is {self.min_budget}: give a number above 0 and up to 1.")
        if not 0 <= self.distill_weight <= 1:
            raise TrainingError(f"--training.distill_weight is {self.distill_weight}: give a number from 0 to 1.")
        if not self.distill_temperature > 0:
            raise TrainingError(f"--training.distill_temperature is {self.distill_temperature}: give more than 0.")
        if self.batch_size < 1 or self.save_every < 1:
            raise TrainingError(
                f"--training.batch_size {self.batch_size} and --training.save_every {self.save_every} "
                "must both be at least 1."
            )
