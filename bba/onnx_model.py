"""Running an exported ONNX file with onnxruntime: token ids in, logits out, as the model it came from gives them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from bba.errors import DataError, ExportError
from bba.model.inference import in_batches

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "logits"


@dataclass(frozen=True)
class Card:
    """What an exported file tells about itself, in its metadata properties: one property a field, each as JSON."""

    checkpoint: str
    """Name of the checkpoint it was made from."""
    kind: str
    """`onnx`, with float32 weights, or `onnx-int8`."""
    budget: float
    """The head budget asked for."""
    ffn_budget: float
    """The FFN budget asked for; 1 where only attention is cut."""
    heads: list[int]
    """Attention heads that are there, layer by layer."""
    neurons: list[int]
    """Feed-forward neurons that are there, layer by layer."""
    labels: list[str]
    """Names of the classes, in the order of the logits."""
    max_length: int
    """Longest input in tokens, [CLS] and [SEP] included."""
    pad_token_id: int
    """The token that fills short rows up."""

    def to_properties(self) -> dict[str, str]:
        """Return the properties to write into a file."""
        return {name: json.dumps(value, ensure_ascii=False) for name, value in asdict(self).items()}

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> "Card":
        """Read a file's properties; one that is missing is a KeyError, one that is no JSON a ValueError."""
        return cls(**{field.name: json.loads(properties[field.name]) for field in fields(cls)})


class OnnxModel:
    """An exported file, ready to run on the CPU.

    Args:
        path: what `bba.export.export` wrote.
        threads: how many threads a call may use.

    Raises:
        ExportError: there is no such file, it is damaged, or another program wrote it.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        if threads < 1:
            raise ExportError(f"The number of threads is {threads}: give at least 1.")
        if not Path(path).is_file():
            raise ExportError(f"There is no file {path}: make one with `python -m bba export`.")
        self.bytes = Path(path).stat().st_size
        """Size of the file, which is about that of the weights."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # What goes wrong is raised; this keeps it from being printed as well.
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # The kinds that onnxruntime raises have no base of their own.
            raise ExportError(f"{path} is no ONNX file that can be run: copy it again, or export it again.") from error
        try:
            self.card = Card.from_properties(self._session.get_modelmeta().custom_metadata_map)
        except (KeyError, ValueError) as error:
            raise ExportError(
                f"{path} does not tell its labels and settings, so another program wrote it: "
                "make one with `python -m bba export`."
            ) from error

    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits of one batch, shape (B, labels).

        Args:
            input_ids: token ids, shape (B, T).
            attention_mask: 1 for tokens, 0 for padding, shape (B, T); None where nothing is padding.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        feed = dict(zip(INPUTS, (input_ids.numpy(), mask.numpy()), strict=True))
        return torch.from_numpy(self._session.run([OUTPUT], feed)[0])

    def logits_of(self, rows: Sequence[Sequence[int]], batch_size: int = 64) -> Tensor:
        """Return the logits of token lists, shape (len(rows), labels); see `bba.model.inference.in_batches`.

        Raises:
            DataError: a row is empty, or longer than the file's `max_length`.
        """
        self._check(rows)
        return in_batches(self, rows, self.card.pad_token_id, len(self.card.labels), batch_size)

    def _check(self, rows: Sequence[Sequence[int]]) -> None:
        for number, row in enumerate(rows, start=1):
            if not 1 <= len(row) <= self.card.max_length:
                raise DataError(
                    f"Row {number} of {len(rows)} has {len(row)} tokens: give 1 to {self.card.max_length}, "
                    "which is all that this file reads."
                )
