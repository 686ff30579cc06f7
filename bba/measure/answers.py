"""What a model says of a split's texts at several settings: computed once, read by every measure of quality."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bba.backends import TORCH, Variants
from bba.model import BBAConfig, SequenceClassifier, Setting
from bba.pruning.cost import dense_config, flops
from bba.pruning.plan import Plan, plan_at
from bba.pruning.surgery import pruned_config


@dataclass(frozen=True)
class Answers:
    """Logits of really pruned models for the texts of one split."""

    settings: list[Setting]
    configs: list[BBAConfig]
    """The pruned model of each setting."""
    logits: np.ndarray
    """Shape (settings, texts, labels)."""
    labels: np.ndarray
    """The true class of each text, shape (texts,)."""
    lengths: np.ndarray
    """Tokens of each text, shape (texts,)."""

    @property
    def right(self) -> np.ndarray:
        """Whether the answer is right, shape (settings, texts)."""
        correct: np.ndarray = self.logits.argmax(axis=2) == self.labels
        return correct

    def and_of(self, other: "Answers") -> "Answers":
        """Return these answers and those to the same texts at other settings."""
        return replace(
            self,
            settings=[*self.settings, *other.settings],
            configs=[*self.configs, *other.configs],
            logits=np.concatenate([self.logits, other.logits]),
        )

    def encoder_flops(self) -> np.ndarray:
        """Return the encoder's FLOPs for each text at each setting, shape (settings, texts)."""
        return np.stack([_flops(config, self.lengths) for config in self.configs])

    def dense_flops(self) -> float:
        """Return the dense encoder's FLOPs for all texts together."""
        return float(_flops(dense_config(self.configs[0]), self.lengths).sum())


def _flops(config: BBAConfig, lengths: np.ndarray) -> np.ndarray:
    """Return the encoder's FLOPs for texts of these lengths, shape (texts,)."""
    kinds, places = np.unique(lengths, return_inverse=True)
    counted: np.ndarray = np.array([flops(config, int(length)).encoder for length in kinds], dtype=float)[places]
    return counted


def answers_of(
    model: SequenceClassifier,
    rows: Sequence[Sequence[int]],
    labels: Sequence[int],
    settings: Sequence[Setting],
    progress: Callable[[float], None] = lambda done: None,
    backend: str = TORCH,
) -> Answers:
    """Prune a model to each setting and let it classify token lists on a backend.

    Args:
        model: stays as it is.
        rows: token ids of each text.
        labels: true class of each text.
        settings: what to prune it to; those that keep the same units are the same model.
        progress: hears the share that is done, in [0, 1].
        backend: what the pruned models run on; see `bba.backends`.
    """
    variants = Variants(model)
    known: dict[Plan, tuple[BBAConfig, np.ndarray]] = {}
    answered = []
    for number, setting in enumerate(settings, start=1):
        plan = plan_at(model, *setting)
        if plan not in known:
            logits = variants.running(plan, backend).logits_of(rows)
            known[plan] = (pruned_config(model.config, plan), logits.numpy())
        answered.append(known[plan])
        progress(number / len(settings))
    return Answers(
        settings=list(settings),
        configs=[config for config, _ in answered],
        logits=np.stack([logits for _, logits in answered]),
        labels=np.asarray(labels),
        lengths=np.array([len(row) for row in rows]),
    )
