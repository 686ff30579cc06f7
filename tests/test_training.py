import copy
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from math import exp, log

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from bba.__main__ import main
from bba.commands import train as train_command
from bba.data import sources
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.data.texts import TextData
from bba.errors import TrainingError
from bba.measure import latency, metrics
from bba.model import Setting
from bba.model.backbones import from_scratch
from bba.predict import BudgetedClassifier
from bba.pruning.importance import importance
from bba.settings import ModelSettings, StageSettings, TrainSettings
from bba.training import trainer
from bba.training.losses import distillation_loss
from bba.training.runs import open_run, work_folder
from bba.training.stages import encode, initialise_gates, last_state, planned_steps, train_stages
from bba.training.trainer import BudgetTrainer, LengthGrouped, draw_setting

MODEL = ModelSettings(hidden_size=32, layers=2, heads=4, ffn_size=32, max_length=32, dropout=0.1)
SETTINGS = TrainSettings(
    dense=StageSettings(2, 1e-3),
    soft=StageSettings(1.8, 1e-3),
    hard=StageSettings(1.8, 1e-3),
    batch_size=20,
    min_steps=1,
    save_every=5,
)
"""200 texts: 20 steps a stage, saved after every 5."""


def small_data(seed):
    splits = {name: synthetic_split(n, f"{seed}/{name}") for name, n in (("train", 200), ("validation", 40))}
    return TextData(
        "synthetic", PEOPLE, **splits, test=synthetic_split(60, "test"), source="made here", licence="Free."
    )


def train_in(folder, tokenizer, settings=SETTINGS):
    """Run the three stages as the recipe does, and return the weights before they are rounded for storage."""
    torch.manual_seed(settings.seed)
    fresh = from_scratch(MODEL, len(tokenizer), PEOPLE, settings.ffn)
    data = small_data(settings.seed)
    encoded = (encode(data.train, tokenizer), encode(data.validation, tokenizer))
    return train_stages(fresh, tokenizer, encoded, settings, folder).state_dict()


def same_weights(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stop_at(monkeypatch, stage, step, error):
    """Raise an error in the middle of a step of a stage, once."""
    whole = BudgetTrainer.training_step
    stops = [error]

    def step_or_stop(self, *arguments, **options):
        loss = whole(self, *arguments, **options)
        if (self.stage, self.state.global_step) == (stage, step) and stops:
            raise stops.pop()
        return loss

    monkeypatch.setattr(BudgetTrainer, "training_step", step_or_stop)


@pytest.fixture(scope="module")
def uninterrupted(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train_in(folder, tokenizer), folder


# Stopping and going on


@pytest.fixture
def finished_up_to(uninterrupted, tmp_path):
    """Return a function that makes a run's folder in which only a stage and those after it are left to do."""

    def make(stage):
        for done in sorted(uninterrupted[1].iterdir()):
            if done.name >= {"dense": "1", "soft": "2", "hard": "3"}[stage]:
                break
            shutil.copytree(done, tmp_path / "run" / done.name)
        return tmp_path / "run"

    return make


@pytest.mark.parametrize(
    ("stage", "step", "goes_on_from"),
    [
        ("dense", 13, "checkpoint-10"),
        ("soft", 2, None),
        ("soft", 7, "checkpoint-5"),  # Within an epoch.
        ("soft", 13, "checkpoint-10"),  # The state was saved where an epoch ends.
        ("hard", 12, "checkpoint-10"),
        ("hard", 17, "checkpoint-15"),  # Within the second epoch.
    ],
)
def test_a_stopped_run_ends_with_the_same_weights_to_the_bit(
    tokenizer, monkeypatch, uninterrupted, finished_up_to, stage, step, goes_on_from
):
    folder = finished_up_to(stage)
    stop_at(monkeypatch, stage, step, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        train_in(folder, tokenizer)
    state = last_state(next(folder.glob(f"*-{stage}")))
    assert (state and state.name) == goes_on_from
    assert same_weights(train_in(folder, tokenizer), uninterrupted[0])


def test_a_run_stopped_many_times_ends_with_the_same_weights(tokenizer, tmp_path, monkeypatch, uninterrupted):
    for stage, step in (("dense", 15), ("soft", 12), ("soft", 16), ("hard", 5), ("hard", 9)):
        with monkeypatch.context() as patch:
            stop_at(patch, stage, step, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                train_in(tmp_path, tokenizer)
    assert same_weights(train_in(tmp_path, tokenizer), uninterrupted[0])


def test_a_run_stopped_while_a_stage_is_put_away(tokenizer, uninterrupted, finished_up_to):
    folder = finished_up_to("hard")
    (folder / "2-soft" / "done").rename(folder / "2-soft" / "writing")
    (folder / "2-soft" / "writing" / "config.json").unlink()
    assert same_weights(train_in(folder, tokenizer), uninterrupted[0])


def test_a_finished_run_is_only_loaded(tokenizer, monkeypatch, uninterrupted):
    stop_at(monkeypatch, "hard", 0, AssertionError("trained again"))
    assert same_weights(train_in(uninterrupted[1], tokenizer), uninterrupted[0])


def test_a_state_cut_short_while_written_is_passed_over(tmp_path):
    for step, state in ((8, "{}"), (9, "{}"), (100, '{"epo'), (101, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_state(tmp_path).name == "checkpoint-9"
    assert last_state(tmp_path / "nowhere") is None


def test_a_run_goes_on_from_an_older_state_where_the_newest_is_cut_short(
    tokenizer, monkeypatch, uninterrupted, finished_up_to
):
    folder = finished_up_to("hard")
    stop_at(monkeypatch, "hard", 12, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        train_in(folder, tokenizer)
    state = last_state(folder / "3-hard")
    (state / "trainer_state.json").unlink()
    (state / "model.safetensors").write_bytes(b"")
    assert last_state(folder / "3-hard").name == "checkpoint-5"
    assert same_weights(train_in(folder, tokenizer), uninterrupted[0])


def test_training_time_adds_up_over_the_starts():
    again = trainer.Clock(**trainer.Clock(before=100.0).state()["args"])
    before = again.before
    assert before > 100
    assert again.seconds > before


# What the seed decides


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (MODEL, replace(SETTINGS, seed=1)),
        (replace(MODEL, dropout=0.0), SETTINGS),
        (replace(MODEL, token_dropout=0.0), SETTINGS),
    ],
    ids=["seed", "dropout", "token dropout"],
)
def test_seed_and_dropout_are_at_work(tokenizer, tmp_path, uninterrupted, monkeypatch, model, settings):
    monkeypatch.setattr(sys.modules[__name__], "MODEL", model)
    stop_at(monkeypatch, "soft", 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        train_in(tmp_path, tokenizer, settings)
    weights = [load_file(folder / "1-dense" / "done" / "model.safetensors") for folder in (tmp_path, uninterrupted[1])]
    assert not same_weights(*weights)


def test_every_stage_trains_what_it_should(uninterrupted):
    weights = {stage: load_file(uninterrupted[1] / stage / "done" / "model.safetensors") for stage in STAGES}
    assert (weights["1-dense"]["gates.scores"] == 0).all()
    for before, after in pairwise(STAGES):
        for name in ("gates.scores", "classifier.weight", "encoder.layers.0.attention.qkv.weight"):
            assert not torch.equal(weights[before][name], weights[after][name]), name


STAGES = ("1-dense", "2-soft", "3-hard")


def test_both_dials_are_learned_and_a_stopped_run_ends_the_same(tokenizer, tmp_path, monkeypatch):
    settings = replace(SETTINGS, ffn=True)
    whole = train_in(tmp_path / "whole", tokenizer, settings)
    for stage in ("soft", "hard"):
        with monkeypatch.context() as patch:
            stop_at(patch, stage, 12, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                train_in(tmp_path / "stopped", tokenizer, settings)
    assert same_weights(train_in(tmp_path / "stopped", tokenizer, settings), whole)
    weights = [load_file(tmp_path / "whole" / stage / "done" / "model.safetensors") for stage in STAGES]
    assert (weights[0]["ffn_gates.scores"] == 0).all()
    for before, after in pairwise(weights):
        assert not torch.equal(before["ffn_gates.scores"], after["ffn_gates.scores"])


def test_frozen_embeddings_stay_and_the_rest_learns(tokenizer, tmp_path, uninterrupted):
    torch.manual_seed(SETTINGS.seed)
    fresh = from_scratch(MODEL, len(tokenizer), PEOPLE).state_dict()
    trained = train_in(tmp_path, tokenizer, replace(SETTINGS, freeze_embeddings=True))
    for name, tensor in fresh.items():
        assert torch.equal(tensor, trained[name]) == name.startswith("encoder.embeddings."), name
    assert not torch.equal(
        uninterrupted[0]["encoder.embeddings.tokens.weight"], fresh["encoder.embeddings.tokens.weight"]
    )


@pytest.mark.parametrize("ffn", [False, True])
def test_budgets_are_the_same_again_and_in_range(ffn):
    settings = replace(SETTINGS, ffn=ffn)
    for stage in ("soft", "hard"):
        drawn = [draw_setting(settings, stage, step) for step in range(1000)]
        assert drawn == [draw_setting(settings, stage, step) for step in range(1000)]
        assert all(SETTINGS.min_budget <= budget <= 1 for setting in drawn for budget in setting)
        assert drawn != [draw_setting(replace(settings, seed=1), stage, step) for step in range(1000)]


def test_a_head_budget_alone_is_drawn_uniformly():
    drawn = [draw_setting(SETTINGS, "soft", step) for step in range(2000)]
    assert {setting.ffn_budget for setting in drawn} == {1.0}
    assert sum(setting.budget for setting in drawn) / 2000 == pytest.approx((1 + SETTINGS.min_budget) / 2, abs=0.02)


def test_pairs_are_drawn_small_more_often_and_mostly_alike():
    drawn = [draw_setting(replace(SETTINGS, ffn=True), "soft", step) for step in range(2000)]
    budgets, ffn_budgets = (torch.tensor(part, dtype=torch.float64) for part in zip(*drawn, strict=True))
    assert budgets.log().mean().item() == pytest.approx(log(SETTINGS.min_budget) / 2, abs=0.06)
    cut = ffn_budgets[ffn_budgets < 1]
    assert cut.log().mean().item() == pytest.approx(log(SETTINGS.min_budget) / 2, abs=0.06)
    assert (ffn_budgets == 1).double().mean().item() == pytest.approx(0.25, abs=0.03)
    assert (budgets == ffn_budgets).double().mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("ffn", "every"), [(False, 4), (True, 8)])
def test_the_hard_stage_also_trains_the_dense_and_the_smallest_model(ffn, every):
    drawn = [draw_setting(replace(SETTINGS, ffn=ffn), "hard", step) for step in range(40)]
    dense = range(0, 40, every)
    assert [step for step, setting in enumerate(drawn) if setting == (1.0, 1.0)] == list(dense)
    assert drawn[2::4] == [(SETTINGS.min_budget, SETTINGS.min_budget if ffn else 1.0)] * 10
    assert len({setting.budget for setting in drawn}) == 2 + 40 - 10 - len(dense)


@pytest.mark.parametrize("texts", [1, 199, 200, 59072])
@pytest.mark.parametrize("save_every", [1, 7, 500])
def test_a_stage_ends_where_it_saves_and_never_loses_more_than_was_asked(texts, save_every):
    settings = replace(SETTINGS, save_every=save_every, min_steps=10)
    steps, between = planned_steps(settings, "hard", texts)
    wanted = max(10, 1.8 * texts / 20)
    assert steps % between == 0
    assert between <= save_every
    assert wanted <= steps < wanted + 1 + steps / between


def test_texts_of_like_length_share_a_batch_and_epochs_differ():
    lengths = [5, 30] * 500
    sampler = LengthGrouped(lengths, batch_size=10, seed=3)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert sorted(orders[0]) == list(range(1000))
    assert orders[0] == orders[2] != orders[1]
    mixed = sum(len({lengths[text] for text in orders[0][start : start + 10]}) > 1 for start in range(0, 1000, 10))
    assert mixed <= 5  # Texts are mixed a part at a time, and a part ends in the middle of a batch.


def test_first_scores_follow_importance(model, two_dials, tokenizer):
    validation = encode(synthetic_split(30, "importance"), tokenizer)
    batches = [
        {"input_ids": torch.tensor([ids]), "labels": torch.tensor([label])}
        for ids, label in zip(validation["input_ids"], validation["labels"], strict=True)
    ]
    heads, neurons = importance(model, batches)
    blocks = torch.cat([layer.sort(descending=True)[0].view(3, 16).sum(dim=1) for layer in neurons])
    started = copy.deepcopy(two_dials)
    initialise_gates(started, validation)
    for gates, expected in ((started.gates, torch.cat(heads)), (started.ffn_gates, blocks)):
        assert torch.equal(gates.order(), expected.argsort(descending=True))
        assert len(gates.scores.unique()) == len(expected)
        assert gates.scores.mean().item() == pytest.approx(0, abs=1e-5)
    assert started.ffn_gates.order()[0] % 3 == 0  # A layer's most important neurons are in its first block.


def test_a_cost_weight_keeps_units_of_the_cheap_last_layer_longer(two_dials, tokenizer):
    validation = encode(synthetic_split(30, "importance"), tokenizer)
    places = []
    for weight in (0.0, 0.5, 1.0):
        started = copy.deepcopy(two_dials)
        initialise_gates(started, validation, weight)
        heads = [number // 4 for number in started.gates.order().tolist()]
        blocks = [number // 3 for number in started.ffn_gates.order().tolist()]
        places.append([sum(place for place, layer in enumerate(order) if layer == 2) for order in (heads, blocks)])
    assert places[0][1] > places[1][1] >= places[2][1] == 0 + 1 + 2
    assert places[0][0] >= places[1][0] >= places[2][0] < places[0][0]


# The loss


def test_the_loss_is_the_formula_by_hand():
    logits, teacher = torch.tensor([[2.0, 0.0], [1.0, 3.0]]), torch.tensor([[1.0, 1.0], [0.0, 4.0]])
    labels = torch.tensor([0, 1])

    def softmax(row, temperature):
        powers = [exp(value / temperature) for value in row]
        return [power / sum(powers) for power in powers]

    hard = -sum(log(softmax(row, 1)[label]) for row, label in zip(logits.tolist(), [0, 1], strict=True)) / 2
    soft = 0.0
    for student_row, teacher_row in zip(logits.tolist(), teacher.tolist(), strict=True):
        ours, theirs = softmax(student_row, 2), softmax(teacher_row, 2)
        soft += sum(t * log(t / s) for t, s in zip(theirs, ours, strict=True)) / 2
    expected = 0.7 * hard + 0.3 * 4 * soft
    assert distillation_loss(logits, labels, teacher, 0.3, 2.0).item() == pytest.approx(expected, rel=1e-5)


def test_a_perfect_student_pays_nothing_for_its_teacher():
    logits, labels = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    assert distillation_loss(logits, labels, logits, 1.0, 2.0).item() == pytest.approx(0, abs=1e-6)
    cross_entropy = torch.nn.functional.cross_entropy(logits, labels)
    assert distillation_loss(logits, labels, logits * 9, 0.0, 2.0).item() == pytest.approx(cross_entropy.item())


# What goes wrong


def test_a_loss_that_is_no_number_stops_the_run_and_spares_the_last_state(
    tokenizer, monkeypatch, uninterrupted, finished_up_to
):
    run = finished_up_to("soft")
    with monkeypatch.context() as patch:
        calls = []

        def poisoned(*arguments):
            calls.append(1)
            return distillation_loss(*arguments) * (float("nan") if len(calls) == 10 else 1)

        patch.setattr(trainer, "distillation_loss", poisoned)
        with pytest.raises(TrainingError) as caught:
            train_in(run, tokenizer)
    folder = run / "2-soft"
    assert str(caught.value) == (
        "The loss of the soft stage is not a number at step 9: lower the learning rate (it is 0.001), then start "
        f"anew; the last good state is in {folder}."
    )
    assert last_state(folder).name == "checkpoint-5"
    assert same_weights(train_in(run, tokenizer), uninterrupted[0])


def test_a_learning_rate_out_of_reach_ends_in_advice(tokenizer, tmp_path):
    with pytest.raises(TrainingError, match=r"lower the learning rate \(it is 1e\+30\)"):
        train_in(tmp_path, tokenizer, replace(SETTINGS, dense=StageSettings(2, 1e30)))


def test_a_full_disk_ends_in_advice_and_the_run_can_go_on(tokenizer, uninterrupted, finished_up_to):
    run = finished_up_to("hard")
    weights = (run / "2-soft" / "done" / "model.safetensors").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for limit in (weights // 2, weights + 1000):  # The weights do not fit; they fit but the optimizer's do not.
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(TrainingError, match=r"make room, then add --resume\.$") as caught:
                train_in(run, tokenizer)
            assert "\n" not in str(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert same_weights(train_in(run, tokenizer), uninterrupted[0])


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: ModelSettings(hidden_size=10, heads=3), "--model.hidden_size 10 cannot be shared by --model.heads 3"),
        (lambda: StageSettings(0, 1e-3), "A stage of 0 epochs"),
        (lambda: StageSettings(1, float("nan")), "learning rate nan"),
        (lambda: TrainSettings(min_budget=0), "--training.min_budget is 0"),
        (lambda: TrainSettings(distill_weight=1.5), "--training.distill_weight is 1.5"),
        (lambda: TrainSettings(cost_weight=-1), "--training.cost_weight is -1"),
        (lambda: TrainSettings(batch_size=0), "--training.batch_size 0"),
        (lambda: ModelSettings(heads=0), "--model.heads"),
        (lambda: ModelSettings(dropout=1.5), "--model.dropout"),
        (lambda: ModelSettings(max_length=2), "--model.max_length"),
        (lambda: TrainSettings(distill_temperature=0), "--training.distill_temperature"),
    ],
)
def test_settings_that_cannot_be_are_refused_where_they_are_made(make, part):
    with pytest.raises(TrainingError) as caught:
        make()
    assert part in str(caught.value)
    assert str(caught.value).endswith(".")


# A run's folder


def test_a_second_run_into_a_folder_in_use_is_refused(tmp_path):
    with open_run(tmp_path / "run", {"seed": 0}, resume=False):
        for resume in (False, True):
            with pytest.raises(TrainingError, match="Another run is writing to"):
                open_run(tmp_path / "run", {"seed": 0}, resume).__enter__()


def test_a_stopped_run_is_not_started_over_by_mistake(tmp_path):
    with open_run(tmp_path / "run", {"seed": 0}, resume=False):
        pass
    with pytest.raises(TrainingError, match="add --resume to continue it, or remove that folder"):
        open_run(tmp_path / "run", {"seed": 0}, resume=False).__enter__()
    with open_run(tmp_path / "run", {"seed": 0}, resume=True):
        pass


def test_a_run_is_not_continued_with_other_settings(tmp_path):
    with open_run(tmp_path / "run", {"seed": 0, "task": "a", "model": {"heads": 4}}, resume=False):
        pass
    with pytest.raises(TrainingError, match=r"had other settings \(model, seed\)"):
        open_run(tmp_path / "run", {"seed": 1, "task": "a", "model": {"heads": 8}}, resume=True).__enter__()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="give --out another place"):
        open_run(tmp_path / "file" / "run", {}, resume=False).__enter__()


# The whole recipe, from the command line


FLAGS = [
    *("--task", "synthetic", "--model.hidden_size", "32", "--model.layers", "2", "--model.heads", "4"),
    *("--model.ffn_size", "32", "--model.max_length", "32", "--model.dropout", "0.1", "--model.token_dropout", "0.15"),
    *("--training.dense.epochs", "2", "--training.soft.epochs", "1.8", "--training.hard.epochs", "1.8"),
    *("--training.dense.learning_rate", "1e-3", "--training.soft.learning_rate", "1e-3"),
    *("--training.hard.learning_rate", "1e-3", "--training.batch_size", "20", "--training.save_every", "5"),
    *("--training.min_steps", "1"),
]


@pytest.fixture
def quick(monkeypatch, report):
    """Train on a few texts, and do not measure latency: that is tested elsewhere."""
    monkeypatch.setattr(sources, "synthetic_data", small_data)
    monkeypatch.setattr(metrics, "GRID", (Setting(0.5), Setting(1.0)))
    monkeypatch.setattr(latency, "measure_latency", lambda *arguments: report.latency)


def test_the_recipe_writes_a_checkpoint_and_nothing_else(tmp_path, quick, capsys, uninterrupted):
    assert main(["train", *FLAGS, "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["checkpoint"] == "out"
    assert printed["n"] == 60
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "report.json", "README.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["counts"] == {"train": 200, "validation": 40, "test": 60}
    assert stored["recipe"]["training"]["soft"] == {"epochs": 1.8, "learning_rate": 1e-3}
    assert stored["training_seconds"] > 0
    assert [row["accuracy"] for row in stored["test"]] == [row["accuracy"] for row in printed["rows"]]
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert same_weights(weights, {name: tensor.half() for name, tensor in uninterrupted[0].items()})


def test_a_pretrained_backbone_becomes_a_checkpoint_with_two_dials(tmp_path, quick, capsys, tokenizer):
    shape = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    BertModel(BertConfig(**shape, intermediate_size=128)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    capsys.readouterr()
    flags = [*FLAGS[FLAGS.index("--training.dense.epochs") :], "--backbone", str(tmp_path / "bert")]
    assert main(["train", "--task", "synthetic", *flags, "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(row["budget"], row["ffn_budget"]) for row in printed["rows"]] == list(metrics.PAIRS)
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["recipe"]["backbone"] == str(tmp_path / "bert")
    assert stored["recipe"]["training"]["ffn"] is True
    classifier = BudgetedClassifier.from_pretrained(tmp_path / "out")
    assert classifier.checkpoint.model.config.blocks == [[0, 1]] * 2
    theirs = load_file(tmp_path / "bert" / "model.safetensors")["embeddings.word_embeddings.weight"]
    ours = classifier.checkpoint.model.encoder.embeddings.tokens.weight
    assert torch.equal(ours, theirs.half().float())  # Embeddings of a pretrained encoder are not trained.


def test_a_killed_process_is_continued_by_the_command(tmp_path, quick, capsys, uninterrupted):
    program = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import test_training
from bba.__main__ import main
from bba.data import sources
from bba.training.trainer import BudgetTrainer
sources.synthetic_data = test_training.small_data
whole = BudgetTrainer.training_step
def step_or_die(self, *arguments, **options):
    if (self.stage, self.state.global_step) == ("soft", 10):
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, *arguments, **options)
BudgetTrainer.training_step = step_or_die
main(["train", *test_training.FLAGS, "--out", sys.argv[2]])
"""
    out = tmp_path / "out"
    command = [sys.executable, "-c", program, os.path.dirname(__file__), str(out)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert not out.exists()
    assert work_folder(out).is_dir()

    assert main(["train", *FLAGS, "--out", str(out)]) == 1
    assert "add --resume" in capsys.readouterr().err
    assert main(["train", *FLAGS, "--out", str(out), "--resume", "--training.min_budget", "0.1"]) == 1
    assert "had other settings (training)" in capsys.readouterr().err
    assert main(["train", *FLAGS, "--out", str(out), "--resume"]) == 0
    weights = load_file(out / "model.safetensors")
    assert same_weights(weights, {name: tensor.half() for name, tensor in uninterrupted[0].items()})
    assert not work_folder(out).exists()


def test_ctrl_c_is_answered_with_how_to_go_on(tmp_path, quick, capsys, monkeypatch):
    stop_at(monkeypatch, "dense", 12, KeyboardInterrupt())
    assert main(["train", *FLAGS, "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err.endswith("\nStopped. A training run continues with --resume.\n")
    assert last_state(work_folder(tmp_path / "out") / "1-dense").name == "checkpoint-10"


def test_an_existing_checkpoint_is_not_trained_over(checkpoint_folder, quick, capsys, monkeypatch):
    monkeypatch.setattr(train_command, "_fit", lambda *arguments: pytest.fail("trained"))
    assert main(["train", *FLAGS, "--out", str(checkpoint_folder)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert not work_folder(checkpoint_folder).exists()


def test_texts_of_the_teaching_task_are_cut_where_a_shorter_model_ends(tmp_path, quick, monkeypatch):
    seen = []

    def look(fresh, tokenizer, data, *arguments):
        seen.extend(len(ids) for part in data for ids in part["input_ids"])
        return fresh

    monkeypatch.setattr("bba.training.stages.train_stages", look)
    train_command.train("synthetic", tmp_path / "out", model=replace(MODEL, max_length=16))
    assert max(seen) == 16
