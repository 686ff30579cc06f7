"""What a command says: a result as JSON values and as text, and a progress bar on standard error."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bba.export import Exported
    from bba.measure.budgetformer_report import BudgetFormerReport
    from bba.measure.ladder import Routing
    from bba.measure.report import BudgetRow
    from bba.predict import Prediction

ACCURACY = ("accuracy", "accuracy_low", "accuracy_high", "macro_f1")


@dataclass(frozen=True)
class Result:
    """What a command says, as JSON values for programs and as text for people."""

    values: dict[str, Any]
    text: str

    def to_json(self) -> str:
        """Return the values as one line of JSON."""
        return json.dumps(self.values, ensure_ascii=False)


def of_evaluation(name: str, split: str, count: int, rows: "Sequence[BudgetRow]", backend: str = "torch") -> Result:
    """Return what is said of a checkpoint's accuracy on `count` texts of a split, run on a backend."""
    values = [asdict(row) for row in rows]
    columns = ("budget", "ffn_budget", "heads", "cost", "encoder_cost", *ACCURACY)
    text = f"{name} in {backend}: {count:,} {split} texts, 95 % Wilson intervals\n" + table(columns, values)
    return Result({"checkpoint": name, "backend": backend, "split": split, "n": count, "rows": values}, text)


def of_chosen(name: str, report: "BudgetFormerReport") -> Result:
    """Return what is said of a BudgetFormer's accuracy and cost on the test texts."""
    row = asdict(report.test) | {"target": report.target, "dense_accuracy": report.dense_accuracy["test"]}
    columns = ("target", "cost", "heads", "encoder_cost", *ACCURACY, "dense_accuracy")
    text = f"{name}: {report.counts['test']:,} test texts, 95 % Wilson intervals\n" + table(columns, [row])
    return Result({"checkpoint": name, "split": "test", "n": report.counts["test"], "rows": [row]}, text)


def of_prediction(prediction: "Prediction") -> Result:
    """Return what is said of one classified text."""
    row = {
        "text": prediction.text,
        "label": prediction.label,
        "probability": prediction.probability,
        "probabilities": prediction.probabilities,
        "budget": prediction.budget,
        "ffn_budget": prediction.ffn_budget,
        "cost": prediction.cost,
        "encoder_cost": prediction.encoder_cost,
        "tried": [
            {**asdict(step.rung), "label": step.label, "probability": step.probability} for step in prediction.tried
        ],
        "backend": prediction.backend,
    }
    return Result({"rows": [row]}, _prediction_text(prediction))


def _prediction_text(prediction: "Prediction") -> str:
    from bba.predict import MANY_UNKNOWN

    encoded = prediction.encoded
    lines = [f"{label:20} {value:.4f}" for label, value in prediction.probabilities.items()]
    cost = f"{prediction.heads} heads ({prediction.encoder_cost:.3f} of the encoder's cost)"
    lines.append(f"-> {prediction.label}, with {cost}")
    for step in prediction.tried:
        line = f"   budget {step.rung.setting}: {step.label} {step.probability:.4f}"
        lines.append(f"{line}, at least {step.rung.threshold:.4f} asked" if step.rung.threshold else line)
    if encoded.tokens > len(encoded.ids):
        lines.append(f"The text has {encoded.tokens} tokens; the first {len(encoded.ids)} were read.")
    if encoded.unknown >= MANY_UNKNOWN:
        lines.append(f"{encoded.unknown:.0%} of its words are unknown to this model: the answer means little.")
    return "\n".join(lines)


def of_routing(name: str, routing: "Routing") -> Result:
    """Return what is said of the per-input budgets that were chosen for a checkpoint."""
    rows = [
        {
            "ladder": " > ".join(str(rung.setting) for rung in ladder.rungs),
            "cost": ladder.validation.cost,
            "accuracy": ladder.validation.accuracy,
            "test_cost": ladder.test.cost,
            "test_accuracy": ladder.test.accuracy,
        }
        for ladder in routing.ladders
    ]
    before, after = routing.test_errors
    text = (
        f"{name}: ladders chosen on validation, cost as a share of the dense encoder's FLOPs\n"
        f"{table(tuple(rows[0]), rows)}\n"
        f"Expected calibration error on test, mean of {len(routing.fixed)} budgets: {before:.4f} -> {after:.4f}."
    )
    return Result({"checkpoint": name, **asdict(routing)}, text)


def of_export(exported: "Exported", texts: int) -> Result:
    """Return what is said of an exported file that was compared with its model on `texts` texts."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(exported).items()}
    lines = [
        f"{exported.path}: {exported.bytes / 1e6:.1f} MB, with {exported.tokenizer.name}; logits differ from the "
        f"model's by up to {exported.max_difference:.2g} ({exported.relative_error:.2%} of their spread)."
    ]
    if exported.agreement is not None:
        lines.append(f"On {texts:,} texts {exported.agreement:.2%} of the labels are the model's")
        lines[-1] += f"; accuracy {exported.accuracy:.2%}, the model's {exported.torch_accuracy:.2%}."
    return Result({**values, "texts": texts}, "\n".join(lines))


def table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as aligned text."""

    def cell(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = [list(columns), *([cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def progress_bar(what: str) -> Callable[[float], None]:
    """Return a callable that draws the share that is done on standard error."""
    from tqdm import tqdm

    bars: list[tqdm] = []  # Made when there is something to show: an error before that has its line to itself.

    def show(done: float) -> None:
        if not bars:
            bars.append(tqdm(total=100, desc=what, unit="%", leave=False, file=sys.stderr))
        bars[0].update(round(done * 100) - bars[0].n)
        if done >= 1:
            bars[0].close()

    return show
