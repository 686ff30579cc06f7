import copy
import json
import shutil
from dataclasses import replace

import pytest
import test_training
import torch
from huggingface_hub.errors import StrictDataclassError
from test_training import MODEL, small_data
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSequenceClassification

from bba import checkpoints
from bba.__main__ import main
from bba.budgetformer import BudgetFormerClassifier
from bba.checkpoints import BudgetFormerCheckpoint, round_to_half
from bba.commands import budgetformer as command
from bba.data import sources
from bba.data.synthetic import PEOPLE, synthetic_split
from bba.errors import BudgetError, CheckpointError, DataError
from bba.measure import walltime
from bba.measure.budgetformer import encoder_share_of, score_chosen
from bba.measure.memory import peak_bytes
from bba.model import BBAConfig, BudgetFormerConfig, BudgetFormerForSequenceClassification
from bba.model.budgetformer import Exploration, heads_at, margins, soft_top_k_gates, top_k_gates
from bba.model.budgetformer_inference import CLOSE, choose_and_classify
from bba.model.inference import logits_of, pad
from bba.model.modeling import eager_attention
from bba.predict import BudgetedClassifier
from bba.pruning.cost import chosen_flops, flops
from bba.settings import StageSettings
from bba.training import budgetformer as training_module
from bba.training.budgetformer import BudgetFormerTrainer, train_policies
from bba.training.stages import encode, run_stage, with_teacher
from bba.training.start import first_model
from bba.ui.state import problem, stamp_of

SETTINGS = replace(test_training.SETTINGS, soft=StageSettings(2, 1e-3), hard=StageSettings(2, 1e-3))
"""200 texts: 20 steps a stage, saved after every 5."""


@pytest.fixture(scope="module")
def former(model, rows):
    """Return a BudgetFormer whose 3 layers give different texts different heads. Do not change it."""
    torch.manual_seed(5)
    former = BudgetFormerForSequenceClassification.from_dense(model, 0.5, *pad(rows, model.config.pad_token_id))
    with torch.no_grad():
        for policy in former.policies:
            policy.budget.bias.zero_()
            for linear in (policy.budget, policy.relevance):
                linear.weight.normal_(std=0.3)
    round_to_half(former)
    return former.eval()


@pytest.fixture(scope="module")
def texts():
    return synthetic_split(120, "former")


@pytest.fixture(scope="module")
def rows(texts, tokenizer):
    return encode(texts, tokenizer)["input_ids"]


@pytest.fixture
def folder(former, tokenizer, tmp_path):
    BudgetFormerClassifier(BudgetFormerCheckpoint(former, tokenizer, None), "former").save_pretrained(
        tmp_path / "former"
    )
    return tmp_path / "former"


# Choosing


def test_a_budget_pays_for_that_share_of_the_heads_rounded_up():
    assert heads_at(torch.tensor([0.01, 0.25, 0.26, 0.5, 0.99]), 4).tolist() == [1, 1, 2, 2, 4]


def test_the_most_relevant_heads_are_used():
    relevance = torch.tensor([[0.1, 3.0, -1.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    assert top_k_gates(torch.tensor([0.5, 0.6]), relevance).tolist() == [[0, 1, 0, 1], [1, 1, 1, 0]]


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_soft_gates_have_the_budget_as_mean_and_follow_relevance(temperature):
    budgets, relevance = torch.rand(6), torch.randn(6, 8)
    gates = soft_top_k_gates(budgets, relevance, temperature)
    torch.testing.assert_close(gates.mean(dim=1), budgets)
    assert (gates.gather(1, relevance.argsort(dim=1)).diff(dim=1) >= 0).all()


def test_soft_gates_become_the_greedy_choice_as_the_temperature_falls():
    budgets, relevance = torch.tensor([0.25, 0.5]), torch.stack([torch.randperm(8), torch.randperm(8)]).float()
    torch.testing.assert_close(soft_top_k_gates(budgets, relevance, 1e-3), top_k_gates(budgets, relevance))


def test_gradients_of_soft_gates_are_those_of_finite_differences():
    budgets = torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True)
    relevance = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b, r: soft_top_k_gates(b, r, 0.5), (budgets, relevance), atol=1e-4)


def test_a_margin_is_the_distance_to_another_choice():
    relevance = torch.tensor([[3.0, 2.0, 1.5, 0.0]])
    assert margins(torch.tensor([0.40]), relevance).item() == pytest.approx(0.4, abs=1e-6)  # 1.6 of 4 heads: to 2.
    assert margins(torch.tensor([0.51]), relevance).item() == pytest.approx(0.04, abs=1e-6)  # To 2 heads.
    near = torch.tensor([[3.0, 2.0, 1.99, 0.0]])
    assert margins(torch.tensor([0.4]), near).item() == pytest.approx(0.01, abs=1e-6)  # To another second head.
    assert margins(torch.tensor([0.01]), relevance).item() == pytest.approx(0.96, abs=1e-6)  # Never to no head.


# The model


def test_with_all_heads_it_is_the_dense_model(model, rows):
    former = BudgetFormerForSequenceClassification.from_dense(model, 0.5, *pad(rows, model.config.pad_token_id))
    with torch.no_grad():
        for policy in former.policies:
            policy.budget.bias.fill_(20.0)
    chosen = choose_and_classify(former.eval(), rows)
    assert chosen.heads.all()
    torch.testing.assert_close(chosen.logits, logits_of(model, rows), atol=1e-5, rtol=0)


def test_it_starts_at_a_share_and_in_the_order_of_the_dense_models_gates(model, rows):
    ids = pad(rows, model.config.pad_token_id)
    for share, heads in ((0.1, 1), (0.5, 2), (1.0, 4)):
        output = BudgetFormerForSequenceClassification.from_dense(model, share, *ids)(*ids)
        assert (output.gates.sum(dim=2) == heads).double().mean() > 0.8
    scores = model.gates.scores.view(3, 4)
    assert torch.equal(output.relevance.mean(dim=0).argsort(dim=1), scores.argsort(dim=1))


def test_texts_look_different_to_fresh_policies(model, rows):
    """Else all that they could learn would be the same for all texts."""
    ids = pad(rows, model.config.pad_token_id)
    former, seen = BudgetFormerForSequenceClassification.from_dense(model, 0.5, *ids), []
    for policy in former.policies:
        policy.inner.register_forward_hook(lambda _, read, made: seen.append(made))
    with torch.no_grad():
        for policy in former.policies:
            policy.budget.bias.fill_(20.0)  # All heads open, as when the policies were started.
    former(*ids)
    assert len(seen) == 3
    for made in seen:
        torch.testing.assert_close(made.mean(dim=0), torch.zeros(32), atol=1e-4, rtol=0)
        torch.testing.assert_close(made.std(dim=0), torch.ones(32), atol=1e-3, rtol=0)


def test_a_dense_model_with_an_ffn_dial_gives_one_without(two_dials, rows):
    former = BudgetFormerForSequenceClassification.from_dense(two_dials, 0.5, *pad(rows, two_dials.config.pad_token_id))
    assert former.config.ffn_block == 0
    assert choose_and_classify(former, rows).logits.isfinite().all()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"dense_heads": [2, 3, 2, 2]}, "expected all, and as many in every layer"),
        ({"kept_heads": [[0]] * 4}, "expected all, and as many in every layer"),
        ({"ffn_block": 64}, "a BudgetFormer has no FFN dial"),
        ({"policy_size": 0}, "policy_size is 0; expected at least 1"),
    ],
)
def test_shapes_that_cannot_be_are_refused(values, sentence):
    with pytest.raises(StrictDataclassError) as error:
        BudgetFormerConfig(**values)
    assert sentence in str(error.value.__cause__)


def test_each_text_is_computed_with_its_heads_alone(former, rows):
    """In evaluation mode only chosen heads are computed; in training all are, and closed ones are multiplied by 0."""
    batch = pad(rows[:16], former.config.pad_token_id)
    with torch.inference_mode():
        grouped = former(*batch)
        every = copy.deepcopy(former)
        for layer in every.encoder.layers:
            layer.attention.train()
            layer.attention.config.attention_dropout = 0.0
        gated = every(*batch)
    assert len(torch.unique(grouped.gates.flatten(1), dim=0)) > 3
    assert torch.equal(grouped.gates, gated.gates)
    torch.testing.assert_close(grouped.logits, gated.logits, atol=1e-5, rtol=0)


def test_exploration_is_noisy_and_greedy_choice_is_not(former, rows):
    ids = pad(rows[:4], former.config.pad_token_id)
    once, again = former(*ids), former(*ids)
    assert torch.equal(once.logits, again.logits)
    training = copy.deepcopy(former).train()
    noisy = [training(*ids, exploration=Exploration(1.0, 1.0, hard=False)).gates for _ in range(2)]
    assert not torch.equal(*noisy)
    assert 0 < noisy[0].min() < noisy[0].max() < 1
    hard = training(*ids, exploration=Exploration(0.1, 0.0, hard=True))
    assert set(hard.gates.detach().round(decimals=4).flatten().tolist()) == {0.0, 1.0}
    hard.logits.sum().backward()
    assert all(policy.budget.weight.grad.abs().sum() > 0 for policy in training.policies)


def test_cost_moves_policies_and_no_hidden_states(former, rows):
    """Else the cost term would make texts alike to the policies."""
    training = copy.deepcopy(former).train()
    training(*pad(rows[:4], former.config.pad_token_id)).budgets[:, 0].sum().backward()
    assert training.policies[0].inner.weight.grad.abs().sum() > 0
    assert training.encoder.embeddings.tokens.weight.grad is None


# Company changes nothing


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_neither_batch_nor_order_nor_padding_changes_what_a_text_gets(former, rows, batch_size):
    whole = choose_and_classify(former, rows, batch_size=120)
    other = choose_and_classify(former, rows[::-1], batch_size)
    assert torch.equal(whole.heads, other.heads.flip(0))
    assert torch.equal(whole.logits.argmax(dim=1), other.logits.argmax(dim=1).flip(0))
    torch.testing.assert_close(whole.budgets, other.budgets.flip(0), atol=1e-5, rtol=0)
    assert len(torch.unique(whole.heads.flatten(1), dim=0)) > 10


def test_a_text_whose_choice_is_close_is_run_again_alone(former, rows):
    close = copy.deepcopy(former)
    with torch.no_grad():
        for policy in close.policies:
            policy.budget.weight.zero_()
            policy.budget.bias.fill_(CLOSE / 100)  # Half the heads and a trifle: three of four, only just.
    chosen = choose_and_classify(close, rows, batch_size=64)
    assert chosen.again == len(rows)
    assert torch.equal(chosen.heads, choose_and_classify(close, rows, batch_size=1).heads)


# Cost


def test_flops_are_those_that_torch_counts(former, rows, monkeypatch):
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention",
        lambda query, key, value, attn_mask, dropout_p: eager_attention(query, key, value, attn_mask, dropout_p)[0],
    )
    for row in rows[:10]:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            gates = former(*pad([row], 0)).gates
        counted = chosen_flops(former.config, gates[0].sum(dim=1).int().tolist(), len(row)).total
        assert counted == pytest.approx(counter.get_total_flops(), rel=1e-3)


def test_a_share_counts_the_policies_and_goes_by_each_texts_length(former):
    config = former.config
    dense = BBAConfig.from_dict({**config.to_dict(), "model_type": "bba"})
    assert encoder_share_of(config, [[4, 4, 4]], [20]) > 1
    spent = chosen_flops(config, [1, 2, 3], 10).encoder + chosen_flops(config, [4, 4, 1], 30).encoder
    whole = flops(dense, 10).encoder + flops(dense, 30).encoder
    assert encoder_share_of(config, [[1, 2, 3], [4, 4, 1]], [10, 30]) == pytest.approx(spent / whole)


def test_a_score_tells_which_texts_got_how_many_heads(former, rows, texts):
    chosen = choose_and_classify(former, rows)
    row = score_chosen(former.config, chosen, rows, texts.labels)
    assert row.heads == pytest.approx(sum(row.heads_by_layer))
    assert row.cost == pytest.approx(row.heads / 12)
    for groups in (row.by_label, row.by_length):
        assert sum(group.texts for group in groups) == len(rows)
        assert sum(group.heads * group.texts for group in groups) == pytest.approx(row.heads * len(rows))
        for group in groups:
            assert sum(group.histogram) == group.texts


def test_peak_memory_is_what_was_alive_at_a_time():
    def run():
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        return second + torch.empty(100).sum()

    assert peak_bytes(run) == pytest.approx(6000, abs=64)


# Training


@pytest.fixture(scope="module")
def warm(tokenizer, tmp_path_factory):
    """Return a dense warm start with the texts. Do not change it."""
    torch.manual_seed(0)
    data = small_data(0)
    dense, _ = first_model(data, "word", MODEL, ffn_dial=False)
    train, validation = encode(data.train, tokenizer), encode(data.validation, tokenizer)
    dense = run_stage("dense", dense, tokenizer, (train, validation), SETTINGS, tmp_path_factory.mktemp("warm"))
    return dense, train, validation


def train_in(folder, tokenizer, warm, target):
    torch.manual_seed(0)
    dense, train, validation = copy.deepcopy(warm[0]), *warm[1:]
    return train_policies(dense, tokenizer, (with_teacher(train, dense), validation), SETTINGS, target, folder)


@pytest.fixture
def quick_policies(monkeypatch):
    """Let 40 steps be enough to reach a target."""
    monkeypatch.setattr(training_module, "POLICY_LEARNING_RATE", 0.05)
    monkeypatch.setattr(training_module, "MEMORY", 0.0)


@pytest.mark.usefixtures("quick_policies")
@pytest.mark.parametrize("target", [0.5, 0.75])
def test_the_mean_share_of_heads_goes_to_its_target(tokenizer, tmp_path, warm, target):
    former = train_in(tmp_path, tokenizer, warm, target)
    share = choose_and_classify(former, warm[2]["input_ids"]).heads.double().mean()
    assert share.item() == pytest.approx(target, abs=0.1)


def test_exploration_anneals_to_exploitation(tokenizer, tmp_path, warm, monkeypatch):
    seen, whole = [], BudgetFormerTrainer._gates

    def gates(self):
        seen.append((self.stage, whole(self)["exploration"]))
        return whole(self)

    monkeypatch.setattr(BudgetFormerTrainer, "_gates", gates)
    train_in(tmp_path, tokenizer, warm, 0.5)
    soft = [one for stage, one in seen if stage == "soft"]
    assert soft[0] == Exploration(1.0, 1.0, hard=False)
    noises = [one.noise for one in soft]
    assert noises == sorted(noises, reverse=True)
    assert soft[-1].noise < 0.1
    assert soft[-1].temperature < 0.15
    assert {one for stage, one in seen if stage == "hard"} == {Exploration(0.1, 0.0, hard=True)}


@pytest.mark.parametrize(("stage", "step"), [("soft", 7), ("hard", 13)])
def test_a_stopped_run_ends_with_the_same_weights(tokenizer, tmp_path, warm, monkeypatch, stage, step):
    expected = train_in(tmp_path / "whole", tokenizer, warm, 0.5).state_dict()
    step_of = BudgetFormerTrainer.training_step

    def stop(self, *rest, **more):
        if (self.stage, self.state.global_step) == (stage, step):
            raise KeyboardInterrupt
        return step_of(self, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(BudgetFormerTrainer, "training_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path / "stopped", tokenizer, warm, 0.5)
    ended = train_in(tmp_path / "stopped", tokenizer, warm, 0.5).state_dict()
    assert all(torch.equal(ended[name], weights) for name, weights in expected.items())


# A checkpoint


def test_an_examiner_sees_budget_relevance_and_heads(former, folder, texts, rows):
    classifier = BudgetFormerClassifier.from_pretrained(folder)
    chosen = choose_and_classify(former, rows)
    for place, prediction in enumerate(classifier.predict(texts.texts)):
        assert len(prediction.layers) == 3
        for layer, used in zip(prediction.layers, chosen.heads[place], strict=True):
            assert len(layer.heads) == heads_at(torch.tensor(layer.budget), 4)
            best = sorted(range(4), key=lambda head: -layer.relevance[head])[: len(layer.heads)]
            assert layer.heads == sorted(best) == used.nonzero().flatten().tolist()
            assert sum(layer.relevance) == pytest.approx(1, abs=1e-5)
        assert prediction.cost == sum(len(layer.heads) for layer in prediction.layers) / 12
        assert prediction.label == PEOPLE[int(chosen.logits[place].argmax())]
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_saved_and_loaded_it_says_the_same(former, folder, rows):
    loaded = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    torch.testing.assert_close(choose_and_classify(loaded, rows).logits, choose_and_classify(former, rows).logits)


def test_what_is_no_text_is_refused(folder):
    classifier = BudgetFormerClassifier.from_pretrained(folder)
    assert classifier.predict([]) == []
    for texts in ("one string", [" "], [3]):
        with pytest.raises(DataError):
            classifier.predict(texts)
    with pytest.raises(DataError, match="batch_size is 0"):
        classifier.predict(["a"], batch_size=0)


def test_one_kind_of_checkpoint_is_not_taken_for_the_other(folder, checkpoint_folder):
    with pytest.raises(CheckpointError, match=r"is a BudgetFormer, which has no dial.*BudgetFormerClassifier"):
        BudgetedClassifier.from_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"has a dial .*: use it with `bba\.BudgetedClassifier`"):
        BudgetFormerClassifier.from_pretrained(checkpoint_folder)


def test_the_app_leaves_it_out_and_says_why(folder):
    assert "is a BudgetFormer, which has no dial" in problem(folder, stamp_of(folder))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder that the command writes, with the report's figures as printed."""
    root = tmp_path_factory.mktemp("command")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "synthetic_data", small_data)
        patch.setattr(walltime, "ROUNDS", 2)
        patch.setattr(walltime, "TIMED_TEXTS", 8)
        result = command.budgetformer("synthetic", root / "mine", 0.5, model=MODEL, training=SETTINGS, limit=100)
    return root / "mine", result


def test_the_command_writes_a_checkpoint_and_nothing_else(trained):
    folder, result = trained
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]
    classifier = BudgetFormerClassifier.from_pretrained(folder)
    report = classifier.report
    assert report.counts == {"train": 100, "validation": 40, "test": 60}
    assert report.test.accuracy == result.values["rows"][0]["accuracy"]
    assert [(row.batch, row.model) for row in report.timings] == [
        (batch, name) for batch in (1, 32) for name in ("dense", "fixed", "budgetformer")
    ]
    assert all(row.median_ms > 0 and row.peak_bytes > 0 for row in report.timings)
    test = small_data(0).test
    answers = classifier.predict(test.texts, batch_size=3)
    right = [answer.label == PEOPLE[label] for answer, label in zip(answers, test.labels, strict=True)]
    assert sum(right) / len(right) == pytest.approx(report.test.accuracy)
    heads = [sum(len(layer.heads) for layer in answer.layers) for answer in answers]
    assert sum(heads) / len(heads) == pytest.approx(report.test.heads)


def test_the_card_says_what_was_measured(trained):
    folder, _ = trained
    report = checkpoints.read_budgetformer_report(folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"Accuracy {report.test.accuracy:.2%}" in card
    assert f"{report.test.heads:.2f} of 8 heads" in card
    assert card.count("| budgetformer |") == 2


def test_a_damaged_report_is_refused_in_a_sentence(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "copy")
    path = tmp_path / "copy" / "report.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    for broken, sentence in (({**values, "format": 9}, "has format 9"), ({**values, "test": {}}, "is not complete")):
        path.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(CheckpointError, match=sentence):
            checkpoints.read_budgetformer_report(tmp_path / "copy")


def test_it_is_listed_among_the_others(trained, checkpoint_folder, tmp_path, capsys):
    shutil.copytree(trained[0], tmp_path / "former")
    shutil.copytree(checkpoint_folder, tmp_path / "tiny")
    assert main(["list", "--root", str(tmp_path), "--json"]) == 0
    former, tiny = json.loads(capsys.readouterr().out)["rows"]
    assert former["accuracy"] == trained[1].values["rows"][0]["accuracy"]
    assert 2 <= former["heads"] <= 8
    assert (tiny["checkpoint"], tiny["heads"]) == ("tiny", 12)


@pytest.mark.parametrize("target", [0, 1.5, float("nan")])
def test_a_target_that_is_none_is_refused_before_any_work(tmp_path, target):
    with pytest.raises(BudgetError, match="is not usable"):
        command.budgetformer("synthetic", tmp_path / "mine", target)
    assert not list(tmp_path.iterdir())
