"""Classify texts with an exported file and the tokenizer beside it: python classify_onnx.py model.onnx "a text" ..."""

import json
import sys

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

if len(sys.argv) < 3:
    sys.exit(f'usage: python {sys.argv[0]} model.onnx "a text" ["another text" ...]')
path, *texts = sys.argv[1:]
session = onnxruntime.InferenceSession(path)
tokenizer = Tokenizer.from_file(path.removesuffix(".onnx") + ".tokenizer.json")
labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])

encoded = tokenizer.encode_batch(texts)  # Cut to what the model reads, and padded to the longest of these texts.
ids = np.array([text.ids for text in encoded], dtype=np.int64)
mask = np.array([text.attention_mask for text in encoded], dtype=np.int64)
logits = session.run(["logits"], {"input_ids": ids, "attention_mask": mask})[0]

odds = np.exp(logits - logits.max(axis=1, keepdims=True))
for text, row in zip(texts, odds / odds.sum(axis=1, keepdims=True), strict=True):
    print(f"{labels[row.argmax()]}\t{row.max():.3f}\t{text}")  # noqa: T201
