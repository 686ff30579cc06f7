"""A small encoder distilled from a larger one on texts without labels, as a first model for training to start from."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import BertConfig, BertModel, PreTrainedModel, PrinterCallback, Trainer, TrainingArguments, set_seed

from bba.data.corpus import Corpus
from bba.errors import TrainingError
from bba.model.backbones import EMBEDDINGS, FAMILIES, QKV, Family, Pretrained
from bba.model.inference import batches_by_length, pad
from bba.settings import DistillSettings
from bba.training.stages import disk_errors_explained, last_state
from bba.training.trainer import Clock, LengthGrouped, ProgressBar

logger = logging.getLogger(__name__)

STAGE = "distillation"
_TABLES = ("tokens.weight", "positions.weight", "segments.weight")


# Losses


def unexplained(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the share of the teacher's variance that the student leaves unexplained, a scalar.

    It is the squared error over the squared distance from the mean: 0 is perfect, 1 as good as the mean alone. Unlike
    the squared error itself, it is of one scale in every layer of every teacher.

    Args:
        student: vectors already mapped to the teacher's width, shape (N, C).
        teacher: what they should be, shape (N, C).
    """
    return (student - teacher).square().sum() / (teacher - teacher.mean(dim=0)).square().sum()


def relation_loss(student: Tensor, teacher: Tensor, mask: Tensor | None, heads: int) -> Tensor:
    """Return how far the student's self-attention relations are from the teacher's, a scalar.

    MiniLMv2 (Wang et al. 2020, arXiv 2012.15828): queries are cut into relation heads, and in each of them
    softmax(Q·Qᵀ / √d) tells how each token relates to all others; keys and values likewise. The loss is
    KL(teacher ‖ student), averaged over tokens and heads, summed over the three. As only relations are compared,
    widths and numbers of attention heads may differ.

    Args:
        student: queries, keys and values, shape (3, B, T, C); C is a multiple of `heads`.
        teacher: the same with a C of its own.
        mask: 1 for tokens, 0 for padding, shape (B, T); None where there is no padding.
        heads: number of relation heads.
    """
    log_student, log_teacher = (_log_relations(vectors, mask, heads) for vectors in (student, teacher))
    relations = log_teacher.exp()
    divergence = torch.linalg.vecdot(relations, log_teacher) - torch.linalg.vecdot(relations, log_student)
    by_token = divergence.mean(dim=2).sum(dim=0)  # (3, B, heads, T) -> (B, T)
    return _tokens(by_token, mask).mean()


def _log_relations(vectors: Tensor, mask: Tensor | None, heads: int) -> Tensor:
    """Return the logarithms of relations, shape (3, B, heads, T, T)."""
    parts = vectors.unflatten(-1, (heads, -1)).transpose(-3, -2)  # (3, B, heads, T, d)
    parts = parts * parts.shape[-1] ** -0.25  # Both factors, as they are smaller than their product.
    scores = parts @ parts.transpose(-1, -2)
    if mask is not None:
        scores.masked_fill_(mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
    return scores.log_softmax(dim=-1)


def _tokens(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the values of tokens, padding left out, shape (N, ...)."""
    return values.flatten(0, 1) if mask is None else values[mask.bool()]


# Student


def principal_axes(table: Tensor, width: int) -> Tensor:
    """Return the orthonormal axes on which a table's rows vary most, shape (C, width).

    Any turn of them spans the same space; this one is the nearest to the first `width` coordinate axes (orthogonal
    Procrustes), so that at full width it is the identity.

    Args:
        table: rows of C numbers.
        width: number of axes, at most C.
    """
    centred = table.double() - table.double().mean(dim=0)
    kept = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -width:]  # Eigenvalues ascend.
    left, _, right = torch.linalg.svd(kept[:width].T)
    return (kept @ left @ right).float()


def make_student(teacher: Pretrained, settings: DistillSettings) -> tuple[BertModel, Tensor]:
    """Return a BERT whose embeddings are the teacher's, projected, and the projection, shape (teacher's C, C).

    The layers are drawn from torch's random generator. There is no pooler, as no loss would train it.

    Raises:
        TrainingError: the asked shape does not go with the teacher's.
    """
    theirs = teacher.model.config
    _check_widths(theirs.hidden_size, settings)
    student = BertModel(
        BertConfig(
            vocab_size=theirs.vocab_size,
            hidden_size=settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=settings.ffn_size,
            max_position_embeddings=teacher.positions,
            type_vocab_size=getattr(theirs, "type_vocab_size", 0) or 1,
            pad_token_id=teacher.tokenizer.pad_token_id,
        ),
        add_pooling_layer=False,
    )
    axes = principal_axes(teacher.weights[f"embeddings.{EMBEDDINGS['tokens.weight']}"], settings.hidden_size)
    first = teacher.family.first_position(theirs)
    for table in _TABLES:
        name = f"embeddings.{EMBEDDINGS[table]}"
        own = student.get_parameter(name).data
        rows = teacher.weights.get(name, torch.zeros(1, theirs.hidden_size))
        own.copy_((rows[first:] if table == "positions.weight" else rows) @ axes)
    return student, axes


def _check_widths(theirs: int, settings: DistillSettings) -> None:
    if settings.hidden_size > theirs:
        raise TrainingError(
            f"--distillation.hidden_size is {settings.hidden_size}, the teacher's {theirs}: give at most as much."
        )
    if theirs % settings.relation_heads:
        raise TrainingError(
            f"--distillation.relation_heads {settings.relation_heads} does not divide the teacher's width {theirs}: "
            "give a number that does."
        )


def layer_pairs(student: int, teacher: int) -> list[tuple[int, int]]:
    """Return which hidden states are compared, 0 for the embeddings: the first, the middle and the last ones."""
    return [(layer, round(layer * teacher / student)) for layer in sorted({0, student // 2, student})]


class Distillation(nn.Module):
    """A student with what belongs to its training: a linear map to the teacher's width for each pair of layers.

    The teacher is no module of this one: it has nothing to train, and is not saved with the states.
    """

    def __init__(self, student: BertModel, axes: Tensor, teacher: Pretrained, relation_heads: int) -> None:
        """Start the maps where they undo the projection.

        Args:
            student: from `make_student`.
            axes: the projection of its embeddings.
            teacher: the encoder to learn from.
            relation_heads: see `relation_loss`.
        """
        super().__init__()
        self.student, self.teacher, self.relation_heads = student, teacher, relation_heads
        self.pairs = layer_pairs(student.config.num_hidden_layers, teacher.model.config.num_hidden_layers)
        self.maps = nn.ModuleList(_undo(axes, *_last_norm(teacher, layer)) for _, layer in self.pairs)
        for module in student.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # There is one right answer; the configuration keeps its dropout for fine-tuning.

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return the losses of a batch, scalars: `loss` is the sum of all others.

        Args:
            input_ids: token ids, shape (B, T).
            attention_mask: 1 for tokens, 0 for padding, shape (B, T); None where there is no padding.
        """
        with torch.no_grad():  # Not inference mode: the student's gradient needs what the teacher said.
            theirs, their_qkv = observe(self.teacher.model, self.teacher.family, input_ids, attention_mask)
        ours, our_qkv = observe(self.student, FAMILIES["bert"], input_ids, attention_mask)
        losses = {}
        for (own, other), linear in zip(self.pairs, self.maps, strict=True):
            wanted = _tokens(theirs[other], attention_mask)
            losses[f"layer_{own}"] = unexplained(linear(_tokens(ours[own], attention_mask)), wanted)
        losses["relations"] = relation_loss(our_qkv, their_qkv, attention_mask, self.relation_heads)
        return {"loss": torch.stack(list(losses.values())).sum(), **losses}


def _last_norm(teacher: Pretrained, layer: int) -> tuple[Tensor, Tensor]:
    """Return the scale and the shift that the teacher gives its embeddings (layer 0) or a layer's output at the end."""
    prefix, norm = teacher.family.layer.format(layer - 1), teacher.family.modules["ffn_norm"]
    name = f"{prefix}{norm}" if layer else "embeddings.LayerNorm"
    return teacher.weights[f"{name}.weight"], teacher.weights[f"{name}.bias"]


def _undo(axes: Tensor, scale: Tensor, shift: Tensor) -> nn.Linear:
    """Return a linear map from projected vectors, which end with a LayerNorm that neither scales nor shifts, back."""
    wide, narrow = axes.shape
    linear = nn.Linear(narrow, wide)
    with torch.no_grad():
        linear.weight.copy_(scale[:, None] * axes)
        linear.bias.copy_(shift)
    return linear


def observe(
    model: PreTrainedModel, family: Family, input_ids: Tensor, attention_mask: Tensor | None
) -> tuple[Sequence[Tensor], Tensor]:
    """Run an encoder of Hugging Face's.

    Returns:
        The hidden states of embeddings and layers, each (B, T, C); and the last layer's queries, keys and values,
        shape (3, B, T, C).
    """
    prefix = family.layer.format(model.config.num_hidden_layers - 1)
    seen: dict[str, Tensor] = {}
    hooks = []
    for name in QKV:
        module = model.get_submodule(prefix + family.modules[name])
        hooks.append(module.register_forward_hook(lambda _0, _1, output, name=name: seen.update({name: output})))
    try:
        outputs = model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs.hidden_states, torch.stack([seen[name] for name in QKV])


# Run


class _DistillationTrainer(Trainer):
    """Trainer with texts of like length in a batch, one quiet progress bar, and an error where the loss is lost."""

    def __init__(self, model: Distillation, seed: int, **trainer_arguments: Any) -> None:
        self.progress = ProgressBar(STAGE)
        super().__init__(model=model, callbacks=[Clock(), self.progress], **trainer_arguments)
        self.remove_callback(PrinterCallback)
        self.order_seed = seed

    @property
    def seconds(self) -> float:
        """Seconds trained so far, stops not counted."""
        return next(one.seconds for one in self.callback_handler.callbacks if isinstance(one, Clock))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        lengths = [len(ids) for ids in self.train_dataset["input_ids"]]  # type: ignore[index]
        return LengthGrouped(lengths, self.args.train_batch_size, self.order_seed)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the loss of a batch.

        Raises:
            TrainingError: it is not a finite number.
        """
        outputs = model(**inputs)
        if not torch.isfinite(outputs["loss"]):
            raise TrainingError(
                f"The loss of the distillation is not a number at step {self.state.global_step}: lower the learning "
                f"rate (it is {self.args.learning_rate:g}), then start anew."
            )
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def _arguments(settings: DistillSettings, folder: Path, texts: int) -> TrainingArguments:
    steps = math.ceil(settings.epochs * texts / settings.batch_size)
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        warmup_steps=min(200, math.ceil(steps / 10)),
        lr_scheduler_type="linear",
        logging_steps=50,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,
        seed=settings.seed,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        restore_callback_states_from_checkpoint=True,
    )


@dataclass(frozen=True)
class Distilled:
    """A finished student, and what is known of its training."""

    student: BertModel
    """Its weights are such as half precision holds."""
    seconds: float
    """Training time, stops not counted."""
    before: dict[str, float]
    """Losses on held-out texts before training."""
    after: dict[str, float]
    """The same afterwards."""


def distill_encoder(teacher: Pretrained, corpus: Corpus, settings: DistillSettings, folder: Path) -> Distilled:
    """Train a student, from the last saved state in `folder` if there is one.

    Args:
        teacher: the encoder to learn from, which also gives vocabulary and tokenizer.
        corpus: texts.
        settings: of the whole run.
        folder: holds the run's states.

    Raises:
        TrainingError: the asked shape does not go with the teacher's, the loss is lost, or the disk is full.
    """
    train, held_out = (_encode(texts, teacher, settings.max_length) for texts in (corpus.train, corpus.held_out))
    set_seed(settings.seed)
    model = Distillation(*make_student(teacher, settings), teacher, settings.relation_heads)
    trainer = _DistillationTrainer(
        model,
        settings.seed,
        args=_arguments(settings, folder, len(train)),
        train_dataset=Dataset.from_dict({"input_ids": train}),
        data_collator=lambda rows: _batch([row["input_ids"] for row in rows], teacher),
    )
    teacher.model.to(trainer.args.device)  # type: ignore[arg-type]
    before = held_out_losses(model, held_out)
    resumed = last_state(folder)
    note = f", going on from {resumed.name}" if resumed else ""
    logger.info("distillation: %d texts, %d steps%s", len(train), trainer.args.max_steps, note)
    with disk_errors_explained(STAGE, folder):
        try:
            trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        finally:
            trainer.progress.close()
    with torch.no_grad():
        for parameter in model.student.parameters():
            parameter.copy_(parameter.half())
    return Distilled(model.student.cpu(), trainer.seconds, before, held_out_losses(model, held_out))


def _encode(texts: list[str], teacher: Pretrained, max_length: int) -> list[list[int]]:
    longest = min(max_length, teacher.positions)
    encoded = teacher.tokenizer(
        texts, truncation=True, max_length=longest, return_attention_mask=False, return_token_type_ids=False
    )
    return encoded["input_ids"]


def _batch(rows: Sequence[Sequence[int]], teacher: Pretrained) -> dict[str, Tensor]:
    tokens, mask = pad(rows, teacher.tokenizer.pad_token_id)
    return {"input_ids": tokens} if mask is None else {"input_ids": tokens, "attention_mask": mask}


@torch.no_grad()
def held_out_losses(model: Distillation, rows: Sequence[Sequence[int]], batch_size: int = 32) -> dict[str, float]:
    """Return each of the losses on token lists, averaged over them."""
    device = model.student.device
    totals: dict[str, float] = {}
    for numbers in batches_by_length(rows, batch_size):
        batch = _batch([rows[number] for number in numbers], model.teacher)
        for name, loss in model(**{key: tensor.to(device) for key, tensor in batch.items()}).items():
            totals[name] = totals.get(name, 0.0) + float(loss) * len(numbers) / len(rows)
    return totals
