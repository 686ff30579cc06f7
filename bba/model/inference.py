"""Running a model over many token lists without paying for padding."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bba.model.modeling import SequenceClassifier


def pad(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tensor, Tensor | None]:
    """Return token ids, shape (B, T), and the attention mask, shape (B, T): None when no row needs padding."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_token_id, dtype=torch.long)
    for position, row in enumerate(rows):
        ids[position, : len(row)] = torch.as_tensor(row, dtype=torch.long)
    lengths = torch.tensor([len(row) for row in rows])
    if int(lengths.min()) == longest:
        return ids, None
    return ids, (torch.arange(longest) < lengths[:, None]).long()


def batches_by_length(rows: Sequence[Sequence[int]], batch_size: int) -> Iterable[list[int]]:
    """Yield row numbers in batches of similar length, the longest first."""
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]), reverse=True)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


@torch.inference_mode()
def logits_of(model: SequenceClassifier, rows: Sequence[Sequence[int]], batch_size: int = 64) -> Tensor:
    """Return the logits of token lists in their own order, shape (len(rows), num_labels).

    The model is used as it is and must be in evaluation mode.
    """
    logits = torch.empty(len(rows), len(model.config.labels))
    for batch in batches_by_length(rows, batch_size):
        ids, mask = pad([rows[row] for row in batch], model.config.pad_token_id)
        logits[batch] = model(ids, mask).logits
    return logits
