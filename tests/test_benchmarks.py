"""What the benchmarks compare with computes the same as the checkpoint, and their page says what was measured."""

from types import SimpleNamespace

import pytest
import torch

from bba.data.texts import Split
from bba.errors import CheckpointError
from bba.model import Setting
from bba.model.inference import pad
from bba.pruning.surgery import prune_to
from benchmarks.hf_bert import to_bert
from benchmarks.inference import Measured, measure
from benchmarks.inference_page import page

ROWS = [[2, 7, 9, 11, 3], [2, 8, 3], [2, 5, 6, 7, 8, 9, 10, 3]]


@torch.no_grad()
def test_hugging_face_s_class_computes_what_a_dense_checkpoint_computes(two_dials):
    ids, mask = pad(ROWS, two_dials.config.pad_token_id)
    theirs = to_bert(two_dials)(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(two_dials(ids, mask).logits, theirs, atol=1e-5)


def test_hugging_face_s_class_cannot_hold_a_pruned_model(model):
    with pytest.raises(CheckpointError, match="give an unpruned checkpoint"):
        to_bert(prune_to(model, 0.5))


def contestant(name, label):
    return SimpleNamespace(
        name=name, setting=Setting(1.0), note="", call=lambda ids: None, classify=lambda texts: [label] * len(texts)
    )


def test_what_was_measured_is_not_measured_again_and_stands_on_the_page(tmp_path):
    those = [contestant(name, 0) for name in ("HF model", "HF pipeline, batch 1")] + [contestant("Ours, torch", 1)]
    parts = [Split(["a", "b"], [1, 1]), Split(["c"], [0])]
    path, about = tmp_path / "figures.jsonl", {"checkpoint": "some", "cpu": "a CPU", "texts": 3, "rounds": 2}
    steps = list(measure(Measured(path, about), those, parts, 50, 1, rounds=2))
    assert list(measure(Measured(path, about), those, parts, 50, 1, rounds=2)) == []
    assert len(path.read_text().splitlines()) == 1 + len(steps)
    versions = {"torch": "1", "transformers": "2", "onnxruntime": "3", "predicted": 1.25}
    written = page(about | versions, Measured(path, about).records, [(f"{one.name} 1", one) for one in those])
    ours = next(line for line in written.splitlines() if line.startswith("| Ours, torch"))
    assert "66.67 (20.77 to 93.85)" in ours  # Two of three are of class 1.
    with pytest.raises(SystemExit, match="another checkpoint"):
        Measured(path, about | {"cpu": "another CPU"})
