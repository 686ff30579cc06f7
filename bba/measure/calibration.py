"""Calibration: how far a model's probability can be taken at its word, and the temperature that mends it."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

BINS = 15
"""Bins of equal width, as in Guo et al. 2017."""
_LOG_RANGE = (np.log(0.05), np.log(20.0))


def fit_temperature(logits: np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Return the temperature T that makes softmax(logits / T) most likely to give the labels (Guo et al. 2017).

    Args:
        logits: shape (texts, labels).
        labels: the true class of each text.
    """
    truth = np.asarray(labels)

    def loss(log_temperature: float) -> float:
        likely = log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(likely[np.arange(len(truth)), truth].mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_RANGE, method="bounded").x))


def confidences(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return the calibrated probability of the likeliest label of each text, shape (texts,)."""
    largest: np.ndarray = softmax(logits / temperature, axis=1).max(axis=1)
    return largest


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error: |accuracy - mean confidence| of each bin, weighted by its texts.

    Formula 3 of Guo et al., *On Calibration of Modern Neural Networks*, 2017.

    Args:
        confidence: probability of the answer, shape (texts,).
        right: whether the answer is right, shape (texts,).
    """
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=confidence, minlength=BINS) - np.bincount(bins, weights=right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))
