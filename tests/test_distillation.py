from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from test_backbones import WORDS, make_folder
from transformers import AutoTokenizer, BertConfig, BertModel, DistilBertConfig, RobertaConfig, TrainerCallback

from bba.commands.distill import distill as run_distillation
from bba.data import corpus, sources
from bba.data.corpus import read_corpus
from bba.data.texts import Split, TextData
from bba.errors import CheckpointError, DataError, TrainingError
from bba.model.backbones import from_pretrained, load_pretrained
from bba.model.inference import pad
from bba.settings import DistillSettings, ModelSettings
from bba.training import distillation
from bba.training.distillation import (
    Distillation,
    layer_pairs,
    make_student,
    principal_axes,
    relation_loss,
    unexplained,
)

SHAPE = {"vocab_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6, "max_position_embeddings": 42}
TEACHERS = {
    "bert": BertConfig(**SHAPE, hidden_size=48, intermediate_size=80),
    "distilbert": DistilBertConfig(vocab_size=60, n_layers=3, n_heads=6, dim=48, hidden_dim=80),
    "roberta": RobertaConfig(**SHAPE, hidden_size=48, intermediate_size=80, type_vocab_size=1),
}
SMALL = DistillSettings(
    *(2, 32, 2, 64), relation_heads=8, max_length=16, epochs=1, batch_size=8, save_every=8, learning_rate=3e-3
)


def texts_of(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 12, (count,), generator=generator).tolist()
    return [
        " ".join(WORDS[number] for number in torch.randint(0, len(WORDS), (length,), generator=generator))
        for length in lengths
    ]


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("teacher") / "bert", TEACHERS["bert"])


@pytest.fixture(scope="module")
def teacher(teacher_folder):
    return load_pretrained(str(teacher_folder))


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(["text", *texts_of(160, seed=0)]))
    return path


@pytest.fixture
def distill(teacher_folder, texts, tmp_path):
    """Return a function that distils the small encoder; what it is given takes the place of the usual."""

    def run(**given):
        usual = {"out": tmp_path / "student", "teacher": str(teacher_folder), "texts": texts, "distillation": SMALL}
        return run_distillation(**{**usual, **given})

    return run


# Projection


def test_principal_axes_at_full_width_are_the_identity():
    table = torch.randn(50, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(principal_axes(table, 12), torch.eye(12), rtol=0, atol=1e-6)


def test_principal_axes_keep_as_much_of_the_variance_as_any_can():
    table = torch.randn(50, 12, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 13)
    axes = principal_axes(table, 5)
    torch.testing.assert_close(axes.T @ axes, torch.eye(5), rtol=0, atol=1e-6)
    centred = table - table.mean(dim=0)
    most = torch.linalg.svdvals(centred)[:5].square().sum()
    torch.testing.assert_close((centred @ axes).square().sum(), most, rtol=1e-5, atol=0)


@pytest.mark.parametrize("family", TEACHERS)
def test_a_student_of_the_teachers_width_starts_with_its_embeddings(family, tmp_path):
    teacher = load_pretrained(str(make_folder(tmp_path / "teacher", TEACHERS[family])))
    settings = replace(SMALL, hidden_size=48)
    model = Distillation(*make_student(teacher, settings), teacher, 8)
    tokens, mask = pad([[5, 9, 30, 7, 12], [6, 8]], teacher.tokenizer.pad_token_id)
    with torch.no_grad():
        losses = model(tokens, mask)
    assert losses["layer_0"] < 1e-9
    assert losses["layer_2"] > 0.1
    torch.testing.assert_close(losses["loss"], sum(loss for name, loss in losses.items() if name != "loss"))


def test_a_narrow_student_starts_nearer_to_its_teachers_embeddings_than_a_fresh_one(teacher):
    torch.manual_seed(0)
    model = Distillation(*make_student(teacher, SMALL), teacher, 8)
    tokens, _ = pad([[5, 9, 30, 7, 12, 20, 33, 28, 41]], 0)
    with torch.no_grad():
        projected = model(tokens)["layer_0"]
        for parameter in model.student.embeddings.parameters():
            parameter.copy_(torch.randn_like(parameter))
        assert projected < model(tokens)["layer_0"] / 2


# Losses


def test_unexplained_variance_of_the_mean_is_1_and_of_the_truth_0():
    truth = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * 7 + 3
    assert unexplained(truth, truth) == 0
    torch.testing.assert_close(unexplained(truth.mean(dim=0).expand_as(truth), truth), torch.tensor(1.0))


def test_relations_are_those_of_the_formula():
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(3, 2, 5, width, generator=generator) for width in (8, 12))
    expected = 0.0
    for text in range(2):
        for kind in range(3):
            for head in range(4):
                mine, theirs = student[kind, text, :, 2 * head :][:, :2], teacher[kind, text, :, 3 * head :][:, :3]
                p = torch.softmax(theirs @ theirs.T / 3**0.5, dim=-1)
                q = torch.softmax(mine @ mine.T / 2**0.5, dim=-1)
                expected += (p * (p / q).log()).sum() / (2 * 4 * 5)
    torch.testing.assert_close(relation_loss(student, teacher, None, 4), expected)
    assert relation_loss(student, student, None, 4).abs() < 1e-6


def test_padding_changes_no_loss(teacher):
    torch.manual_seed(0)
    model = Distillation(*make_student(teacher, SMALL), teacher, 8)
    rows = [[5, 9, 30, 7], [6, 8, 41, 20]]
    tokens, _ = pad(rows, 0)
    padded, mask = pad([*rows, [5] * 9], 0)
    with torch.no_grad():
        expected, found = model(tokens), model(padded[:2], mask[:2])
    for name, loss in expected.items():
        torch.testing.assert_close(found[name], loss, rtol=1e-5, atol=1e-6)


def test_every_weight_of_the_student_learns_and_none_of_the_teacher(teacher):
    torch.manual_seed(0)
    model = Distillation(*make_student(teacher, SMALL), teacher, 8)
    model(torch.tensor([[2, 9, 30, 7, 3]]))["loss"].backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in teacher.model.parameters())
    assert not any(name.startswith("teacher") for name in model.state_dict())


@pytest.mark.parametrize(
    ("student", "teacher", "pairs"),
    [(4, 6, [(0, 0), (2, 3), (4, 6)]), (2, 3, [(0, 0), (1, 2), (2, 3)]), (1, 12, [(0, 0), (1, 12)])],
)
def test_first_middle_and_last_layers_are_compared(student, teacher, pairs):
    assert layer_pairs(student, teacher) == pairs


# Texts


def test_only_training_texts_of_the_tasks_are_used(monkeypatch):
    asked = []

    def load(task, data, seed):
        asked.append((task, data, seed))
        splits = {name: Split([f"{task} {name} {n}" for n in range(4)], [0, 1, 0, 1]) for name in PARTS}
        return TextData(task, ("a", "b"), **splits, source="here", licence="Free.")

    monkeypatch.setattr(corpus, "load_task", load)
    read = read_corpus(None, None, seed=7)
    assert asked == [("agnews", None, 7), ("dbpedia14", None, 7)]
    assert sorted(read.train) == sorted(f"{task} train {n}" for task in sources.TASKS for n in range(4))
    assert sorted(read.held_out) == sorted(f"{task} validation {n}" for task in sources.TASKS for n in range(4))


PARTS = ("train", "validation", "test")


def test_texts_of_ones_own_are_held_out_by_the_seed(texts):
    first, again, other = (read_corpus(texts, None, seed) for seed in (0, 0, 1))
    assert first == again
    assert first.held_out != other.held_out
    assert (len(first.train), len(first.held_out)) == (152, 8)
    assert not set(first.train) & set(first.held_out)


# Runs


def test_a_run_lowers_the_loss_and_leaves_an_ordinary_bert_folder(distill, tmp_path, capfd):
    result = distill()
    out = tmp_path / "student"
    before, after = result.values["before"], result.values["after"]
    assert all(after[name] < before[name] for name in ("loss", "layer_0", "layer_1", "layer_2"))
    assert f"loss on 8 held-out texts {before['loss']:.4f} -> {after['loss']:.4f}." in result.text
    assert capfd.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["student", "texts.csv"]
    assert {weights.dtype for weights in load_file(out / "model.safetensors").values()} == {torch.float16}

    theirs = BertModel.from_pretrained(out).eval()
    assert {parameter.dtype for parameter in theirs.parameters()} == {torch.float32}
    assert theirs.config.hidden_dropout_prob == 0.1
    assert AutoTokenizer.from_pretrained(out)("ba be")["input_ids"] == [2, 10, 11, 3]
    ours, tokenizer = from_pretrained(str(out), ModelSettings(), "ab")
    assert (ours.config.dense_heads, ours.config.hidden_size, tokenizer.model_max_length) == ([2, 2], 32, 42)
    tokens, mask = pad([[2, 5, 6, 3], [2, 9, 3]], 0)
    with torch.no_grad():
        expected = theirs(tokens, mask).last_hidden_state[mask.bool()]
        torch.testing.assert_close(ours.eval().encoder(tokens, mask)[0][mask.bool()], expected, rtol=0, atol=1e-5)


def test_the_card_says_what_it_is_and_what_it_was_made_from(distill, tmp_path):
    result = distill(distillation=replace(SMALL, epochs=0.1))
    card = (tmp_path / "student" / "README.md").read_text()
    assert "distilled here from" in card
    assert "152 texts of the file texts.csv" in card
    assert "These are not the weights that Google published as BERT-Mini" in card
    assert f"| sum | {result.values['before']['loss']:.4f} | {result.values['after']['loss']:.4f} |" in card


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [3, 12])
def test_a_stopped_run_goes_on_to_the_same_weights(distill, tmp_path, monkeypatch, step):
    distill(out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(distillation._DistillationTrainer, "__init__", _stopping(step))
        with pytest.raises(KeyboardInterrupt):
            distill()
    assert not (tmp_path / "student").exists()
    with pytest.raises(TrainingError, match="add --resume to continue it"):
        distill()
    with pytest.raises(TrainingError, match="had other settings"):
        distill(resume=True, distillation=replace(SMALL, seed=1))
    distill(resume=True)
    stored = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "student")]
    assert stored[0].keys() == stored[1].keys()
    assert all(torch.equal(stored[0][name], stored[1][name]) for name in stored[0])


def _stopping(step):
    make = distillation._DistillationTrainer.__init__

    def made(self, *arguments, **options):
        make(self, *arguments, **options)
        self.add_callback(StopAt(step))

    return made


# Mistakes


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"hidden_size": 64}, "--distillation.hidden_size is 64, the teacher's 48: give at most as much."),
        ({"relation_heads": 32}, "--distillation.relation_heads 32 does not divide the teacher's width 48"),
    ],
    ids=str,
)
def test_a_shape_that_does_not_go_with_the_teacher(distill, tmp_path, other, said):
    with pytest.raises(TrainingError, match=said):
        distill(distillation=replace(SMALL, **other))
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"layers": 0}, "--distillation.layers is 0: give at least 1."),
        ({"heads": 3}, "--distillation.hidden_size 256 cannot be shared by --distillation.heads 3"),
        ({"relation_heads": 7}, "cannot be shared by --distillation.relation_heads 7"),
        ({"epochs": 0}, "--distillation.epochs is 0: give more than 0."),
        ({"learning_rate": -1}, "--distillation.learning_rate is -1: give more than 0."),
        ({"max_length": 2}, "--distillation.max_length is 2: give at least 4."),
    ],
    ids=str,
)
def test_settings_that_cannot_be(other, said):
    with pytest.raises(TrainingError, match=said):
        DistillSettings(**other)


def test_a_loss_that_is_not_a_number(distill, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "unexplained", lambda student, teacher: student.sum() * torch.nan)
    with pytest.raises(TrainingError, match="is not a number at step 0: lower the learning rate"):
        distill()
    assert not (tmp_path / "student").exists()


def test_a_disk_that_is_full(distill, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(BertModel, "save_pretrained", full)
        with pytest.raises(CheckpointError, match=r"could not be written to .*No space left on device"):
            distill(distillation=replace(SMALL, epochs=0.2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["student.training", "texts.csv"]
    distill(resume=True, distillation=replace(SMALL, epochs=0.2))
    assert (tmp_path / "student" / "model.safetensors").is_file()


def test_what_is_there_already_is_left_alone(distill, tmp_path):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "mine").touch()
    with pytest.raises(CheckpointError, match="exists already: give --out a new name"):
        distill()
    assert [path.name for path in (tmp_path / "student").iterdir()] == ["mine"]


def test_texts_and_teachers_that_are_not_there(distill, tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        distill(texts=tmp_path / "nothing.csv")
    with pytest.raises(TrainingError, match="There is no backbone"):
        distill(teacher="no/such")
    single = tmp_path / "single.csv"
    single.write_text("text\nba be\n")
    with pytest.raises(DataError, match="has a single text: give at least two"):
        distill(texts=single)
    with pytest.raises(DataError, match="name the folder with --data"):
        distill(texts=None, data=tmp_path)
