"""`calibrate`: per-input budgets for a checkpoint that is there already."""

from dataclasses import replace
from pathlib import Path

from bba.commands.examples import examples_of
from bba.errors import CheckpointError
from bba.output import Result, of_routing, progress_bar


def calibrate(checkpoint: Path, data: Path | None = None) -> Result:
    """Choose per-input budgets for a checkpoint and add them to its report; `train` does the same at its end.

    Temperatures and thresholds are fitted on the task's validation texts; the test texts are scored with them.

    Args:
        checkpoint: folder of the checkpoint.
        data: folder of the task's data; without it as for train.
    """
    from bba.checkpoints import replace_report
    from bba.measure.answers import Answers, answers_of
    from bba.measure.card import model_card
    from bba.measure.ladder_choice import find_routing
    from bba.measure.metrics import grid
    from bba.predict import BudgetedClassifier

    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    if classifier.report is None:
        raise CheckpointError(
            f"{checkpoint} has no report.json to add to: make the checkpoint with `python -m bba train`."
        )

    def answers(split: str) -> Answers:
        examples = examples_of(classifier, data, split, (None, None))
        rows = [one.ids for one in classifier.encode(examples.texts)]
        model = classifier.checkpoint.model
        return answers_of(model, rows, examples.labels, grid(model.config), progress_bar(split))

    routing = find_routing(answers("validation"), answers("test"))
    report = replace(classifier.report, routing=routing)
    replace_report(checkpoint, report, model_card(classifier.name, report))
    return of_routing(classifier.name, routing)
