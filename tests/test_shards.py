"""Many texts, classified by several processes with `datasets`, each on a shard: the answers are one process's."""

import os

import pytest
import torch
from datasets import Dataset

from bba.data.synthetic import synthetic_split
from bba.predict import BudgetedClassifier

TEXTS = [*synthetic_split(150, "shards").texts, "hat? tom:hat " * 40, "🙂 été"]


@pytest.mark.parametrize("budget", [0.5, "auto"])
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_shards_get_the_answers_of_one_process(routed_folder, backend, budget):
    classifier = BudgetedClassifier.from_pretrained(routed_folder).on(backend)
    expected = classifier.predict(TEXTS, budget)  # What is kept of this call, graphs too, must not be in the way.

    def classify(rows):
        torch.set_num_threads(1)
        answers = classifier.predict(rows["text"], budget)
        return {
            "label": [answer.label for answer in answers],
            "probability": [answer.probability for answer in answers],
            "budget": [answer.budget for answer in answers],
            "process": [os.getpid() for _ in answers],
        }

    got = Dataset.from_dict({"text": TEXTS}).map(classify, batched=True, batch_size=40, num_proc=2)
    assert len(set(got["process"])) == 2
    assert list(got["label"]) == [answer.label for answer in expected]
    assert list(got["budget"]) == [answer.budget for answer in expected]
    assert list(got["probability"]) == pytest.approx([answer.probability for answer in expected], abs=1e-6)
