"""The app's sentences about values: notices about a text, verdicts on a measurement, figures with their units."""

import math
import re

from bba.measure.report import Latency, LatencyRow, Report
from bba.predict import MANY_UNKNOWN, Prediction


def plain(text: str) -> str:
    """Return text with all Markdown switched off, so that a name or a message shows as it was written."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", re.sub(r"[ \t\r\n]+", " ", text))


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def count(number: int) -> str:
    """Return a whole number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def milliseconds(value: float) -> str:
    """Return a time with three significant digits and its unit."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{min(digits, 3)}f} ms"


def notices(text: str, prediction: Prediction) -> list[str]:
    """Return a sentence for each thing about a text that its reader should know before trusting the answer."""
    found = []
    read, whole = len(prediction.encoded.ids), prediction.encoded.tokens
    if read < whole:
        words = len(text.split())
        size = f"{count(words)} words" if words > 1 else f"{count(len(text))} letters without a blank"
        found.append(f"{size}: the first {read} tokens were read, the rest was left out.")
    if prediction.encoded.unknown >= MANY_UNKNOWN:
        found.append(
            f"{100 * prediction.encoded.unknown:.0f} % of the words read are unknown to this model, which has learned "
            "only the words of its training texts: do not rely on the answer."
        )
    if "\0" in text:
        found.append("The text holds NUL characters, which were left out.")
    return found


def noise(latency: Latency, row: LatencyRow) -> float:
    """Return half the width of an approximate 95 % interval of a row's speed-up.

    From the interquartile ranges of the row and of dense: the standard error of a median over n rounds is about
    0.93 · IQR / √n for normal errors, and relative errors of a ratio add in squares.
    """
    spread = math.hypot(*(each.iqr_ms / each.median_ms for each in (latency.rows[0], row)))
    return 1.96 * 0.93 * spread / math.sqrt(latency.rounds) * row.speedup


def gain(latency: Latency, row: LatencyRow) -> str:
    """Return in words whether a speed-up can be told from none."""
    if row is latency.rows[0]:
        return "the baseline"
    if abs(row.speedup - 1) <= noise(latency, row):
        return "no measurable gain"
    return "faster" if row.speedup > 1 else "slower"


def row_at(latency: Latency, budget: float) -> LatencyRow | None:
    """Return the row of a budget, dense for 1, or None if it was not measured."""
    return next((row for row in latency.rows if row.budget == budget), None)


def taken_on(latency: Latency) -> str:
    """Return on what a latency was measured."""
    threads = "1 thread" if latency.threads == 1 else f"{latency.threads} threads"
    texts = "1 text" if latency.batch == 1 else f"{latency.batch} texts"
    return (
        f"{latency.cpu}, {threads}, {texts} of {latency.length} tokens at a time, median of {latency.rounds} rounds "
        f"in turn with dense, torch {latency.torch}"
    )


def tested_on(report: Report) -> str:
    """Return on how many texts of which task a checkpoint was tested."""
    return f"{count(report.counts['test'])} {report.task} test texts"


def origin(report: Report) -> str:
    """Return what a checkpoint was trained for and on how much, in a sentence."""
    classes = f"{len(report.labels)} classes"
    sentence = f"Trained on {count(report.counts['train'])} texts of the task {report.task}, {classes}."
    if report.parent:
        sentence += f" Cut from {report.parent['name']} at budget {report.parent['budget']}; what was cut is gone."
    return sentence
