"""The app's sentences about values: notices about a text, verdicts on a measurement, figures with their units."""

import math
import re

from bba.measure.report import BudgetRow, Latency, LatencyRow, Report
from bba.model import BBAConfig, Setting
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


def kept(row: BudgetRow) -> str:
    """Return how many heads, and feed-forward blocks where they are counted, a setting keeps."""
    heads = "1 head" if row.heads == 1 else f"{row.heads} heads"
    return f"{heads}, {row.blocks} blocks" if row.blocks else heads


def kept_of_all(row: BudgetRow, config: BBAConfig) -> str:
    """Return what is kept of the dense model, in so few letters that half a phone's width holds them."""
    return kept(row) if row.blocks else f"{row.heads} of {config.num_dense_heads} heads"


def noise(latency: Latency, row: LatencyRow, base: LatencyRow | None = None) -> float:
    """Return half the width of an approximate 95 % interval of how many times as fast as a base a row is.

    From the interquartile ranges of both: the standard error of a median over n rounds is about 0.93 · IQR / √n for
    normal errors, and relative errors of a ratio add in squares.

    Args:
        latency: the measurement.
        row: one of its rows.
        base: another one; None for dense.
    """
    base = base or latency.rows[0]
    spread = math.hypot(*(each.iqr_ms / each.median_ms for each in (base, row)))
    return 1.96 * 0.93 * spread / math.sqrt(latency.rounds) * base.median_ms / row.median_ms


def gain(latency: Latency, row: LatencyRow) -> str:
    """Return in words whether a speed-up can be told from none."""
    if row is latency.rows[0]:
        return "the baseline"
    if abs(row.speedup - 1) <= noise(latency, row):
        return "no measurable gain"
    return "faster" if row.speedup > 1 else "slower"


def row_at(latency: Latency, setting: Setting) -> LatencyRow:
    """Return the row of a setting; dense for one that was not measured apart, as it leaves the model as it is."""
    return next((row for row in latency.rows if row.setting == setting), latency.rows[0])


def accuracies(one: BudgetRow, other: BudgetRow, tests: str) -> str:
    """Return in words what the intervals of A and B allow to say about which is more accurate."""
    both = f"Both were tested on the same {tests}."
    if (one.heads, one.blocks) == (other.heads, other.blocks):
        return "A and B keep the same heads and blocks: they are the same model."
    if one.accuracy_low <= other.accuracy_high and other.accuracy_low <= one.accuracy_high:
        return f"{both} Their 95 % intervals overlap: from these figures neither can be called the more accurate one."
    better = "A" if one.accuracy > other.accuracy else "B"
    return f"{both} Their 95 % intervals do not overlap: **{better}** is the more accurate one."


def times(latency: Latency, one: Setting, other: Setting) -> str:
    """Return in words how the latencies of A and B, measured in turn in one run, compare."""
    first, second = row_at(latency, one), row_at(latency, other)
    ratio = first.median_ms / second.median_ms
    if abs(ratio - 1) <= noise(latency, second, first):
        return "No difference in latency can be measured between them."
    faster, slower = ("B", "A") if ratio > 1 else ("A", "B")
    return f"**{faster}** is {max(ratio, 1 / ratio):.2f} times as fast as {slower}."


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
        cut = Setting(report.parent["budget"], report.parent.get("ffn_budget", 1.0))
        sentence += f" Cut from {report.parent['name']} at budget {cut}; what was cut is gone."
    return sentence
