"""What `distill` leaves: the encoder's folder, and the card that says what it is and what it is not."""

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from bba.data.corpus import Corpus
from bba.measure.latency import cpu_name
from bba.model.backbones import Pretrained
from bba.model.quiet import quiet
from bba.settings import DistillSettings
from bba.training.distillation import Distilled

TEACHERS = {"minilm": ("all-MiniLM-L6-v2", "Apache-2.0")}
"""Full name and licence of the teachers that have a short name."""


def write_encoder(folder: Path, distilled: Distilled, teacher: Pretrained, card: str) -> None:
    """Write a student as an ordinary BERT folder: half precision on disk, float32 in use; and its model card."""
    student = distilled.student
    with quiet():
        student.save_pretrained(folder, state_dict={name: w.half() for name, w in student.state_dict().items()})
        teacher.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")


def encoder_card(teacher_name: str, distilled: Distilled, corpus: Corpus, settings: DistillSettings) -> str:
    """Return the model card of a student, as Markdown.

    Args:
        teacher_name: as it was asked for.
        distilled: the student and its losses.
        corpus: the texts it was trained on.
        settings: of the run.
    """
    full_name, licence = TEACHERS.get(teacher_name, (teacher_name, ""))
    terms = f"It is licensed under {licence}." if licence else "Its own card names its licence."
    sources = "\n".join(f"- {source}" for source in corpus.sources)
    return f"""---
library_name: transformers
---

# {_title(distilled.student.config)}, distilled here from {full_name}

{_shape(distilled.student)}

These are not the weights that Google published as BERT-Mini: this package trained them to imitate the teacher. It is an
encoder to fine-tune, without a pooler; give this folder as `--backbone`, or load it with transformers' `AutoModel`.

## Teacher

{full_name}. {terms} Its tokenizer is used as it is; the embeddings started as a projection of its embeddings.

## Data

{sources}

No labels and no test texts were used. The losses below are those of {len(corpus.held_out):,} texts that seed
{settings.seed} held out.

## Recipe

{_recipe(distilled, len(corpus.train), settings)}

The loss is the sum of: the share of variance that a linear map of the student's hidden states leaves unexplained of the
teacher's, after the embeddings, the middle and the last layer; and how far the last layer's self-attention relations
(queries, keys and values, {settings.relation_heads} relation heads) diverge, as in MiniLMv2 (arXiv 2012.15828).

| loss on held-out texts | before | after |
|---|---|---|
{_losses(distilled)}

## Limits

Trained on little text of few kinds. On texts of another kind, or in another language, expect less of it than of an
encoder that was trained on more.
"""


def _title(config: BertConfig) -> str:
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size)
    return "BERT-Mini shape" if shape == (4, 256, 4, 1024) else "A small BERT"


def _shape(student: BertModel) -> str:
    config = student.config
    return (
        f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {config.num_attention_heads} heads, "
        f"{config.intermediate_size} feed-forward neurons, {config.vocab_size:,} tokens, "
        f"{config.max_position_embeddings} positions: {student.num_parameters():,} parameters."
    )


def _recipe(distilled: Distilled, texts: int, settings: DistillSettings) -> str:
    return (
        f"{settings.epochs:g} epochs of {texts:,} texts, cut at {settings.max_length} tokens; batches of "
        f"{settings.batch_size}; AdamW, learning rate {settings.learning_rate:g}; seed {settings.seed}; "
        f"{distilled.seconds / 60:.1f} minutes on {cpu_name()} with at most {torch.get_num_threads()} threads."
    )


def _losses(distilled: Distilled) -> str:
    names = {"loss": "sum", "layer_0": "embeddings", "relations": "self-attention relations"}
    return "\n".join(
        f"| {names.get(name, name.replace('_', ' '))} | {before:.4f} | {distilled.after[name]:.4f} |"
        for name, before in distilled.before.items()
    )
