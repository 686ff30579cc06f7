"""`bench`: latency of pruned models."""

from dataclasses import asdict
from pathlib import Path

from bba.commands.typed import settings_for
from bba.output import Result, progress_bar, table


def bench(
    checkpoint: Path,
    budgets: str = "0.25,0.5,0.75",
    batch: int = 1,
    length: int | None = None,
    threads: int = 1,
    rounds: int = 15,
    backend: str = "torch",
) -> Result:
    """Measure the latency of really pruned models, in turn with the unpruned one.

    Args:
        checkpoint: folder of the checkpoint.
        budgets: settings with commas between, each a head budget or a pair HEAD:FFN.
        batch: texts per call.
        length: tokens per text; without it 64, or as many as the model reads.
        threads: CPU threads.
        rounds: how often each model is timed.
        backend: what the models run on, one or more with commas between: torch, onnx, onnx-int8. The unpruned one in
            torch takes part in any case; the speed-ups are over it.
    """
    from bba.measure.latency import LatencySettings, measure_latency, usual_length, warn_of_waiting
    from bba.predict import BudgetedClassifier

    backends = tuple(part.strip() for part in backend.split(","))
    classifier = BudgetedClassifier.from_pretrained(checkpoint)
    if length is None:
        length = usual_length(classifier.checkpoint.model.config)
    settings = LatencySettings(batch, length, threads, rounds, backends)
    latency = measure_latency(
        classifier.checkpoint.model,
        settings_for(budgets, classifier),
        settings,
        progress_bar("measuring"),
        warn_of_waiting,
    )
    values = {"checkpoint": classifier.name, **asdict(latency)}
    head = f"{latency.cpu}, {latency.threads} thread(s), batch {latency.batch}, {latency.length} tokens, "
    head += f"torch {latency.torch}, "
    if latency.onnxruntime:
        head += f"onnxruntime {latency.onnxruntime}, "
    head += f"median of {latency.rounds} rounds; budget 0 is the model without attention"
    columns = ("backend", "budget", "ffn_budget", "heads", "median_ms", "iqr_ms", "speedup", "predicted_speedup")
    return Result(values, head + "\n" + table(columns, values["rows"]))
