"""Measuring a BudgetFormer: accuracy, the heads that texts get, wall time and memory beside models without choice."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from bba.measure.budgetformer_report import ChosenRow, Group, TimingRow
from bba.measure.latency import alone, interquartile_range
from bba.measure.memory import peak_bytes
from bba.measure.metrics import quality_of
from bba.measure.walltime import BATCHES, Rows, Run, time_over_texts
from bba.model import BudgetFormerConfig, BudgetFormerForSequenceClassification, SequenceClassifier
from bba.model.budgetformer_inference import Chosen, choose_and_classify
from bba.model.inference import logits_of
from bba.pruning.cost import chosen_flops, flops
from bba.pruning.surgery import prune_to

LENGTH_RANGES = 4


def encoder_share_of(config: BudgetFormerConfig, counts: Sequence[Sequence[int]], lengths: Sequence[int]) -> float:
    """Return the FLOPs of encoder and policies over those of the dense encoder, both summed over texts.

    Args:
        config: of the model.
        counts: heads in each layer, for each text.
        lengths: tokens of each text.
    """
    spent = sum(chosen_flops(config, heads, length).encoder for heads, length in zip(counts, lengths, strict=True))
    return spent / sum(flops(config, length).encoder for length in lengths)


def score_chosen(
    config: BudgetFormerConfig, chosen: Chosen, rows: Sequence[Sequence[int]], labels: Sequence[int]
) -> ChosenRow:
    """Score what a BudgetFormer said of a split's token lists, and tell which texts got how many heads."""
    counts, lengths = chosen.counts, np.array([len(row) for row in rows])
    heads, truth = counts.sum(dim=1).numpy(), np.asarray(labels)
    total = config.num_dense_heads
    return ChosenRow(
        **asdict(quality_of(chosen.logits.argmax(dim=1).numpy(), labels, len(config.labels))),
        budget=float(chosen.budgets.mean()),
        heads=float(heads.mean()),
        cost=float(heads.mean() / total),
        encoder_cost=encoder_share_of(config, counts.tolist(), lengths.tolist()),
        heads_by_layer=counts.double().mean(dim=0).tolist(),
        by_label=[_group(name, heads[truth == label], total) for label, name in enumerate(config.labels)],
        by_length=[_group(name, heads[inside], total) for name, inside in _length_ranges(lengths)],
        again=chosen.again,
    )


def _length_ranges(lengths: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return ranges of lengths with about as many texts in each: their names, and which texts are in them."""
    edges = np.unique(np.quantile(lengths, np.arange(1, LENGTH_RANGES + 1) / LENGTH_RANGES, method="higher"))
    starts = [int(lengths.min()), *(int(edge) + 1 for edge in edges[:-1])]
    return [
        (f"{start} to {edge} tokens", (lengths >= start) & (lengths <= edge))
        for start, edge in zip(starts, edges, strict=True)
    ]


def _group(name: str, heads: np.ndarray, total: int) -> Group:
    mean = float(heads.mean()) if len(heads) else 0.0
    return Group(name, len(heads), mean, np.bincount(heads, minlength=total + 1).tolist())


def measure_timings(
    model: BudgetFormerForSequenceClassification, dense: SequenceClassifier, rows: Rows
) -> list[TimingRow]:
    """Time the dense model, one cut to a fixed number of heads, and a BudgetFormer, in turn, for each size of batch.

    Args:
        model: in evaluation mode.
        dense: the dense model of the same shape, in evaluation mode; its gates say which heads are cut.
        rows: token ids of real texts, as the choice of heads depends on them.

    Raises:
        MeasureError: another measurement does not end.
    """
    counts = choose_and_classify(model, rows).counts
    fixed = prune_to(dense, float(counts.sum(dim=1).double().mean()) / model.config.num_dense_heads).eval()
    lengths = [len(row) for row in rows]
    spent = [
        sum(flops(dense.config, length).total for length in lengths),
        sum(flops(fixed.config, length).total for length in lengths),
        sum(
            chosen_flops(model.config, heads, length).total
            for heads, length in zip(counts.tolist(), lengths, strict=True)
        ),
    ]
    runs: list[Run] = [partial(logits_of, dense), partial(logits_of, fixed), partial(choose_and_classify, model)]
    with alone():
        return [row for batch in BATCHES for row in _timed(runs, rows, batch, spent)]


def _timed(runs: Sequence[Run], rows: Rows, batch: int, spent: Sequence[int]) -> list[TimingRow]:
    times = time_over_texts(runs, rows, batch)
    return [
        TimingRow(
            model=name,
            batch=batch,
            median_ms=float(np.median(times[:, place])),
            iqr_ms=interquartile_range(times[:, place]),
            speedup=float(np.median(times[:, 0] / times[:, place])),
            predicted_speedup=spent[0] / spent[place],
            peak_bytes=peak_bytes(partial(runs[place], rows, batch)),
        )
        for place, name in enumerate(("dense", "fixed", "budgetformer"))
    ]
