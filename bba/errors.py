"""The errors a user can cause. Each carries one sentence: what was wrong, what was expected, what to do."""


class BBAError(ValueError):
    """Base of every error that is the caller's to mend; its message is shown to people as it stands."""


class BudgetError(BBAError):
    """A budget that is not a number in (0, 1], or one that the model cannot serve."""


class DataError(BBAError):
    """A text, file or folder of examples that cannot be used."""


class CheckpointError(BBAError):
    """A checkpoint folder that is missing, damaged, or not one of ours."""


class TrainingError(BBAError):
    """A training run that cannot start, or cannot go on."""


class MeasureError(BBAError):
    """A measurement that cannot be taken as asked."""


class ExportError(BBAError):
    """An exported file that cannot be written or run, or that does not compute what its model computes."""
