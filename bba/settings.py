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
    ffn: bool = False
    """Train a second dial too: a budget for the feed-forward part. Without it only attention is cut."""
    batch_size: int = 64
    """Texts per step."""
    score_learning_rate: float = 0.02
    """Learning rate of the scores of heads and feed-forward blocks."""
    cost_weight: float = 0.0
    """Power of a unit's FLOPs that its importance is divided by before the first order is made: 0 looks at importance
    alone; more than that keeps cheap units longer, so that the same budget runs faster and is less accurate."""
    min_budget: float = 0.05
    """Smallest budget that training draws, for either dial."""
    distill_weight: float = 0.5
    """Weight of the dense teacher's soft labels against the true labels, in [0, 1]."""
    distill_temperature: float = 2.0
    """Temperature T of the soft labels."""
    weight_decay: float = 0.01
    """AdamW weight decay of the matrices."""
    freeze_embeddings: bool = False
    """Leave the embeddings as they are; it makes the training of a pretrained encoder faster."""
    min_steps: int = 300
    """Fewest steps of a stage: a small file is gone through more often than the stage's epochs say."""
    save_every: int = 500
    """Steps between saved states of the gate stages, the most a stopped run loses; the dense one saves every epoch."""
    seed: int = 0
    """Seed of everything random: split, fresh weights, data order, budgets, dropout."""

    def __post_init__(self) -> None:
        if not 0 < self.min_budget <= 1:
            raise TrainingError(f"--training.min_budget is {self.min_budget}: give a number above 0 and up to 1.")
        if not 0 <= self.cost_weight <= 1:
            raise TrainingError(f"--training.cost_weight is {self.cost_weight}: give a number from 0 to 1.")
        if not 0 <= self.distill_weight <= 1:
            raise TrainingError(f"--training.distill_weight is {self.distill_weight}: give a number from 0 to 1.")
        if not self.distill_temperature > 0:
            raise TrainingError(f"--training.distill_temperature is {self.distill_temperature}: give more than 0.")
        if self.batch_size < 1 or self.save_every < 1:
            raise TrainingError(
                f"--training.batch_size {self.batch_size} and --training.save_every {self.save_every} "
                "must both be at least 1."
            )


@dataclass(frozen=True)
class DistillSettings:
    """How a small encoder is distilled from a larger one; its shape is BERT-Mini's unless another is asked for."""

    layers: int = 4
    """Number of Transformer layers."""
    hidden_size: int = 256
    """Width of the residual stream, at most the teacher's."""
    heads: int = 4
    """Attention heads per layer."""
    ffn_size: int = 1024
    """Feed-forward neurons per layer."""
    relation_heads: int = 16
    """Parts that queries, keys and values are cut into to be compared; it divides both encoders' widths."""
    max_length: int = 128
    """Longest text in tokens while distilling; longer ones are cut. The encoder itself reads what its teacher reads."""
    epochs: float = 1.0
    """Passes over the texts."""
    learning_rate: float = 1e-3
    """Peak learning rate; it rises over the first steps and then falls linearly to zero."""
    batch_size: int = 32
    """Texts per step."""
    save_every: int = 250
    """Steps between saved states, the most a stopped run loses."""
    seed: int = 0
    """Seed of everything random: held-out texts, fresh weights, data order."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden_size", "heads", "ffn_size", "relation_heads", "batch_size", "save_every"):
            if getattr(self, name) < 1:
                raise TrainingError(f"--distillation.{name} is {getattr(self, name)}: give at least 1.")
        if self.max_length < 4:
            raise TrainingError(f"--distillation.max_length is {self.max_length}: give at least 4.")
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) > 0:
                raise TrainingError(f"--distillation.{name} is {getattr(self, name)}: give more than 0.")
        for name in ("heads", "relation_heads"):
            if self.hidden_size % getattr(self, name):
                raise TrainingError(
                    f"--distillation.hidden_size {self.hidden_size} cannot be shared by --distillation.{name} "
                    f"{getattr(self, name)}: give a hidden size that is a multiple of it."
                )


WORD = "word"
"""The backbone that is none: fresh weights and a vocabulary of whole words."""


def usual_settings(task: str, backbone: str) -> tuple[ModelSettings, TrainSettings]:
    """Return the settings that suit a task and a backbone, where nothing else is asked for.

    Fresh weights need many passes at a high learning rate; a pretrained encoder needs few at a low one. The teaching
    task has a model that is small enough to train while people watch.
    """
    if backbone != WORD:
        training = TrainSettings(
            dense=StageSettings(1, 1e-4),
            soft=StageSettings(0.15, 1e-4),
            hard=StageSettings(4, 1e-4),
            ffn=True,
            batch_size=32,
            min_budget=0.1,
            freeze_embeddings=True,
        )
        return ModelSettings(dropout=0.1, token_dropout=0.0), training
    if task == "synthetic":
        small = ModelSettings(
            hidden_size=64, layers=4, heads=8, ffn_size=128, max_length=32, dropout=0.0, token_dropout=0.0
        )
        return small, TrainSettings()
    return ModelSettings(), TrainSettings()
