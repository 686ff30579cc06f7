"""What tests share: a tiny model and a complete checkpoint of it, made here in a second without a network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from dataclasses import asdict, replace

import pytest
import torch

from bba.checkpoints import Checkpoint, round_to_half
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.data.synthetic import synthetic_tokenizer as make_tokenizer
from bba.measure import latency
from bba.measure.answers import answers_of
from bba.measure.ladder_choice import find_routing
from bba.measure.metrics import GRID, score_budgets, score_without_attention
from bba.measure.report import Report
from bba.model import BBAConfig, BBAForSequenceClassification
from bba.model.backbones import from_scratch
from bba.predict import BudgetedClassifier
from bba.settings import ModelSettings, TrainSettings
from bba.training.stages import encode

torch.set_num_threads(1)

TINY = ModelSettings(hidden_size=32, layers=3, heads=4, ffn_size=48, max_length=32, dropout=0.1)


@pytest.fixture(scope="session", autouse=True)
def own_measuring_lock(tmp_path_factory):
    """Keep clear of measurements that other programs on this machine take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "LOCK", tmp_path_factory.mktemp("lock") / "measuring.lock")
        yield


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer):
    """Return a tiny model: 12 heads with distinct scores, weights that half precision holds. Do not change it."""
    torch.manual_seed(0)
    model = from_scratch(TINY, len(tokenizer), PEOPLE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # Biases too; and head outputs that matter.
        model.gates.scores.copy_(torch.randn(12))
    round_to_half(model)
    return model.eval()


@pytest.fixture(scope="session")
def two_dials(model):
    """Return the same model with an FFN dial: 9 blocks of 16 neurons, in an order of their own. Do not change it."""
    config = BBAConfig.from_dict({**model.config.to_dict(), "ffn_block": 16, "kept_blocks": None})
    dialled = BBAForSequenceClassification(config)
    dialled.load_state_dict(model.state_dict(), strict=False)
    scores = torch.randn(9, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        dialled.ffn_gates.scores.copy_(scores)
    round_to_half(dialled)
    return dialled.eval()


@pytest.fixture(scope="session")
def report(model, tokenizer):
    """Return the model's report, measured on 100 examples a split."""
    split = {name: encode(synthetic_split(100, name), tokenizer) for name in ("validation", "test")}
    rows = {name: (encoded["input_ids"], encoded["labels"]) for name, encoded in split.items()}
    return Report(
        task="synthetic",
        labels=list(PEOPLE),
        source="made by bba.data.synthetic",
        licence="Generated text; free to use.",
        counts={"train": 0, "validation": 100, "test": 100},
        seed=0,
        recipe={"backbone": "word", "model": asdict(TINY), "training": asdict(TrainSettings())},
        training_seconds=1.0,
        machine={"cpu": latency.cpu_name(), "threads": 1},
        validation=score_budgets(model, *rows["validation"], GRID),
        test=score_budgets(model, *rows["test"], GRID),
        no_attention=score_without_attention(model, *rows["test"]),
        latency=latency.measure_latency(model, GRID, latency.LatencySettings(length=16, rounds=2)),
    )


@pytest.fixture(scope="session")
def checkpoint_folder(model, tokenizer, report, tmp_path_factory):
    """Return the folder of a complete checkpoint. Do not change it: copy it."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    BudgetedClassifier(Checkpoint(model, tokenizer, report), folder.name).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def classifier(checkpoint_folder):
    """Return the checkpoint, loaded. Do not change it."""
    return BudgetedClassifier.from_pretrained(checkpoint_folder)


@pytest.fixture(scope="session")
def routing_texts():
    return {name: synthetic_split(200, f"routing/{name}") for name in ("validation", "test")}


@pytest.fixture(scope="session")
def answers(model, tokenizer, routing_texts):
    """Return what the model says of 200 texts a split at budgets 0.25, 0.5 and 1."""
    settings = [GRID[4], GRID[9], GRID[19]]
    splits = {name: encode(texts, tokenizer) for name, texts in routing_texts.items()}
    return {name: answers_of(model, split["input_ids"], split["labels"], settings) for name, split in splits.items()}


@pytest.fixture(scope="session")
def routing(answers):
    return find_routing(answers["validation"], answers["test"])


@pytest.fixture(scope="session")
def routed_folder(model, tokenizer, report, routing, tmp_path_factory):
    """Return the folder of a checkpoint with budgets per text. Do not change it: copy it."""
    folder = tmp_path_factory.mktemp("routed") / "routed"
    checkpoint = Checkpoint(model, tokenizer, replace(report, routing=routing))
    BudgetedClassifier(checkpoint, folder.name).save_pretrained(folder)
    return folder
