"""`distill`: a small encoder from a larger one."""

from dataclasses import asdict
from pathlib import Path

from bba.output import Result
from bba.settings import DistillSettings


def distill(
    out: Path,
    teacher: str = "minilm",
    data: Path | None = None,
    texts: Path | None = None,
    resume: bool = False,
    distillation: DistillSettings | None = None,
) -> Result:
    """Distil a small encoder from a larger one, on texts without labels, to train classifiers from.

    Args:
        out: folder of the encoder; it appears when the run is over. Until then its states are in OUT.training.
        teacher: minilm, or a BERT-family encoder's folder or its id on the Hugging Face hub.
        data: folder that holds agnews/train.csv and dbpedia14/train.csv, whose texts are used; without it BBA_DATA_DIR,
            then the hub.
        texts: a CSV, TSV, JSONL or Parquet file with a column of texts to use instead.
        resume: continue a run that was stopped.
        distillation: shape of the encoder, BERT-Mini's unless another is given, and how it is trained.
    """
    from bba import checkpoints
    from bba.data.corpus import read_corpus
    from bba.model.backbones import load_pretrained
    from bba.training.distillation import distill_encoder
    from bba.training.encoder_card import encoder_card, write_encoder
    from bba.training.runs import open_run, work_folder

    distillation = distillation or DistillSettings()
    checkpoints.check_free(out)
    pretrained = load_pretrained(teacher)
    corpus = read_corpus(texts, data, distillation.seed)
    settings = {"teacher": teacher, "distillation": asdict(distillation), "texts": corpus.digest()}
    with open_run(work_folder(out), settings, resume):
        done = distill_encoder(pretrained, corpus, distillation, work_folder(out))
        with checkpoints.whole_folder(out) as inside:
            write_encoder(inside, done, pretrained, encoder_card(teacher, done, corpus, distillation))
    checkpoints.remove_work(work_folder(out))
    values = {"encoder": str(out), "teacher": teacher, "n": len(corpus.train), "held_out": len(corpus.held_out)}
    values |= {"parameters": done.student.num_parameters(), "seconds": done.seconds}
    return Result(
        {**values, "before": done.before, "after": done.after},
        f"{out}: distilled from {teacher} on {len(corpus.train):,} texts in {done.seconds / 60:.1f} minutes; loss on "
        f"{len(corpus.held_out):,} held-out texts {done.before['loss']:.4f} -> {done.after['loss']:.4f}.",
    )
