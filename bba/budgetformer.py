"""Classifying texts with a BudgetFormer, and looking at what it chose for each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bba import checkpoints
from bba.checkpoints import BudgetFormerCheckpoint
from bba.errors import DataError
from bba.measure.budgetformer import encoder_share_of
from bba.measure.budgetformer_card import budgetformer_card
from bba.measure.budgetformer_report import BudgetFormerReport
from bba.model.budgetformer_inference import Chosen, choose_and_classify
from bba.predict import Classifier, Encoded, check_texts


@dataclass(frozen=True)
class LayerChoice:
    """What one layer chose for a text."""

    budget: float
    """Predicted share of the layer's heads, in (0, 1)."""
    relevance: list[float]
    """Relevance of each head; they add up to 1."""
    heads: list[int]
    """The most relevant heads, as many as the budget pays for, rounded up: the ones that were used."""


@dataclass(frozen=True)
class ChosenPrediction:
    """What the model says of a text, and what its layers chose for it."""

    text: str
    label: str
    probabilities: dict[str, float]
    """Probability of each label, in the order of the labels; they add up to 1."""
    layers: list[LayerChoice]
    cost: float
    """Share of the model's heads that was used."""
    encoder_cost: float
    """FLOPs of encoder and policies for this text, over those of the dense encoder."""
    encoded: Encoded
    """What the model read."""

    @property
    def probability(self) -> float:
        """Probability of the label."""
        return self.probabilities[self.label]


class BudgetFormerClassifier(Classifier[BudgetFormerCheckpoint]):
    """A text classifier that chooses for each text how many heads it uses, and which."""

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BudgetFormerClassifier":
        """Load a checkpoint folder.

        Raises:
            CheckpointError: it is missing, damaged, or no BudgetFormer.
        """
        folder = Path(folder)
        return cls(checkpoints.load_budgetformer(folder), folder.resolve().name)

    @property
    def report(self) -> BudgetFormerReport | None:
        """What was measured when it was trained."""
        return self.checkpoint.report

    def predict(self, texts: Sequence[str], batch_size: int = 64) -> list[ChosenPrediction]:
        """Classify texts, in their order.

        Args:
            texts: any number of them; long ones are cut, which `ChosenPrediction.encoded` tells.
            batch_size: texts at a time; it changes neither heads nor labels.

        Raises:
            DataError: `texts` is one string, one of them is blank or no text, or `batch_size` is below 1.
        """
        check_texts(texts)
        if batch_size < 1:
            raise DataError(f"The batch_size is {batch_size}: give at least 1.")
        encoded = self.encode(texts)
        chosen = choose_and_classify(self.checkpoint.model, [one.ids for one in encoded], batch_size)
        return [self._prediction(place, text, encoded[place], chosen) for place, text in enumerate(texts)]

    def _prediction(self, place: int, text: str, encoded: Encoded, chosen: Chosen) -> ChosenPrediction:
        probabilities = chosen.logits[place].softmax(dim=0)
        counts = chosen.counts[place].tolist()
        config = self.checkpoint.model.config
        return ChosenPrediction(
            text=text,
            label=self.labels[int(probabilities.argmax())],
            probabilities=dict(zip(self.labels, probabilities.tolist(), strict=True)),
            layers=[
                LayerChoice(float(budget), relevance.tolist(), heads.nonzero().flatten().tolist())
                for budget, relevance, heads in zip(
                    chosen.budgets[place], chosen.relevance[place], chosen.heads[place], strict=True
                )
            ],
            cost=sum(counts) / config.num_dense_heads,
            encoder_cost=encoder_share_of(config, [counts], [len(encoded.ids)]),
            encoded=encoded,
        )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint folder, whole or not at all.

        Raises:
            CheckpointError: something is there already, or the disk is full.
        """
        name = Path(folder).resolve().name
        card = budgetformer_card(name, self.report) if self.report else f"# {name}\n\nA BudgetFormer.\n"
        checkpoints.save(Path(folder), self.checkpoint, card)
