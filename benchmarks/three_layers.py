"""The usual way to a faster model: the first three layers of the dense one, trained on without the others."""

from pathlib import Path

import torch

from bba.data.texts import TextData
from bba.model import BBAForSequenceClassification
from bba.predict import BudgetedClassifier
from bba.pruning.plan import everything
from bba.pruning.surgery import pruned_config
from bba.settings import StageSettings, TrainSettings
from bba.training.stages import encode, run_stage, with_teacher

LAYERS = 3
SETTINGS = TrainSettings(dense=StageSettings(2, 1e-4), batch_size=32, freeze_embeddings=True)
"""The dense model is the teacher; the epoch best on validation is kept."""


def three_layers(classifier: BudgetedClassifier, data: TextData, folder: Path) -> BBAForSequenceClassification:
    """Return the model, trained in `folder` if it was not yet; a stopped training goes on."""
    model, tokenizer = first_layers(classifier, LAYERS), classifier.checkpoint.tokenizer
    train, validation = (encode(split, tokenizer) for split in (data.train, data.validation))
    if not (folder / "done").is_dir():
        train = with_teacher(train, classifier.checkpoint.model)
    return run_stage("dense", model, tokenizer, (train, validation), SETTINGS, folder).eval()


@torch.no_grad()
def first_layers(classifier: BudgetedClassifier, layers: int) -> BBAForSequenceClassification:
    """Return a model of the same width with a dense model's first layers and its classifier, not trained for that."""
    dense = classifier.checkpoint.model
    config = pruned_config(dense.config, everything(dense.config))
    for name in ("dense_heads", "kept_heads", "ffn_sizes", "kept_blocks"):
        setattr(config, name, list(getattr(config, name))[:layers])
    model = BBAForSequenceClassification(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    kept = {name: tensor for name, tensor in dense.state_dict().items() if shapes.get(name) == tensor.shape}
    model.load_state_dict(kept, strict=False)  # The gates' scores are fewer, and all of them are open.
    return model
