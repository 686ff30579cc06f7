"""`evaluate`: accuracy of a checkpoint at several budgets."""

from pathlib import Path

from bba.commands.examples import examples_of
from bba.commands.typed import settings_for
from bba.output import Result, of_evaluation, progress_bar


def evaluate(
    checkpoint: Path,
    data: Path | None = None,
    budgets: str | None = None,
    split: str = "test",
    limit: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    backend: str = "torch",
) -> Result:
    """Measure a checkpoint's accuracy at several budgets, each with a really pruned model.

    Args:
        checkpoint: folder of the checkpoint.
        data: folder of the task's data, or a file with texts and labels; without it as for train.
        budgets: settings with commas between, each a head budget or a pair HEAD:FFN, such as 1,0.5,0.25,0.5:0.5;
            without it all that were measured when the checkpoint was trained.
        split: train, validation or test.
        limit: use only this many examples, the classes in proportion.
        text_column: the column of a file's texts, where its name does not tell.
        label_column: the column of a file's labels, where its name does not tell.
        backend: what the models run on: torch, onnx, or onnx-int8, whose answers differ a little.
    """
    from bba.backends import check_backend
    from bba.measure.metrics import score_budgets
    from bba.predict import BudgetedClassifier

    check_backend(backend)
    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    settings = settings_for(budgets, classifier)
    examples = examples_of(classifier, data, split, (text_column, label_column))
    if limit is not None:
        examples = examples.subset(limit, seed=0)
    rows = [one.ids for one in classifier.encode(examples.texts)]
    model = classifier.checkpoint.model
    scored = score_budgets(model, rows, examples.labels, settings, progress_bar("evaluating"), backend)
    return of_evaluation(classifier.name, split, len(examples), scored, backend)
