"""Running a model over many token lists without paying for padding."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from bba.model.modeling import SequenceClassifier
from bba.model.packed import PackedClassifier


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


def in_batches(
    run: Callable[[Tensor, Tensor | None], Tensor],
    rows: Sequence[Sequence[int]],
    pad_token_id: int,
    labels: int,
    batch_size: int,
) -> Tensor:
    """Return the logits of token lists in their own order, shape (len(rows), labels).

    Args:
        run: returns the logits of one batch, shape (B, labels), of what `pad` returns.
        rows: token lists; those of similar length share a batch.
        pad_token_id: fills up the shorter ones of a batch.
        labels: number of labels.
        batch_size: rows that `run` is given at once, at most.
    """
    logits = torch.empty(len(rows), labels)
    for batch in batches_by_length(rows, batch_size):
        logits[batch] = run(*pad([rows[row] for row in batch], pad_token_id))
    return logits


def logits_of(model: SequenceClassifier, rows: Sequence[Sequence[int]], batch_size: int = 64) -> Tensor:
    """Return the logits of token lists as the model gives them in evaluation mode with all gates open.

    See `in_batches` for arguments and shape.
    """
    config = model.config
    return in_batches(PackedClassifier(model), rows, config.pad_token_id, len(config.labels), batch_size)
