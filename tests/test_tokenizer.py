import pytest
import transformers

from bba.data.tokenizers import train_word_tokenizer, unknown_share
from bba.errors import DataError

TEXTS = [
    "The world's stocks fall, café prices climb.",
    "the world's oil price: $21 a barrel",
    'Marsh & McLennan "falls" as oil and café stocks climb...',
    "AT&T falls; the price is $21. marsh mclennan at t barrel",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_tokenizer(TEXTS, vocab_size=100, max_length=16)


def test_special_tokens_come_first(tokenizer):
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert tokenizer.model_max_length == 16


def test_one_text_and_a_pair(tokenizer):
    assert tokenizer.decode(tokenizer("Oil FALLS")["input_ids"]) == "[CLS] oil falls [SEP]"
    assert tokenizer.decode(tokenizer("oil", "falls")["input_ids"]) == "[CLS] oil [SEP] falls [SEP]"


def test_batches_are_padded_right_and_cut(tokenizer):
    batch = tokenizer(["oil", "oil " * 50], padding=True, truncation=True)
    assert list(batch) == ["input_ids", "attention_mask"]
    assert batch["input_ids"][0][3:] == [0] * 13
    assert batch["attention_mask"] == [[1] * 3 + [0] * 13, [1] * 16]


@pytest.mark.parametrize(
    ("damaged", "clean"),
    [
        ("the world #39;s oil", "the world's oil"),
        ("the world&#39;s oil", "the world's oil"),
        ("the world\u2019s oil", "the world's oil"),
        ("Marsh  amp; McLennan", "Marsh & McLennan"),
        ("AT amp;T", "AT&T"),
        ("the  quot;oil quot; falls", 'the "oil" falls'),
        ("quot;oil quot; falls", '"oil" falls'),
        ("&lt;b&gt;...&lt;/b&gt; oil", "... oil"),
        ('oil &lt;A HREF="http://x.y/z?a=b"&gt;AT&lt;/A&gt;', "oil AT"),
        ("the  #36;21 price", "the $21 price"),
        (r"oil\price \$21", "oil price $21"),
        ("CAFE", "café"),
        ("oil\0", "oil"),
    ],
)
def test_damaged_texts_have_the_tokens_of_clean_ones(tokenizer, damaged, clean):
    assert tokenizer.tokenize(damaged) == tokenizer.tokenize(clean)
    assert "[UNK]" not in tokenizer.tokenize(clean)


def test_comparisons_are_no_tags(tokenizer):
    assert len(tokenizer.tokenize("1 < 2 and 3 > 2, List<String>")) == 12


def test_equal_words_give_an_equal_tokenizer(tokenizer):
    again = train_word_tokenizer(iter(TEXTS[::-1]), vocab_size=100, max_length=16)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_vocabulary_size_and_frequency():
    assert len(train_word_tokenizer(TEXTS, vocab_size=10, max_length=16)) == 10
    assert "prices" in train_word_tokenizer(TEXTS, 100, 16, min_frequency=1).get_vocab()
    assert "prices" not in train_word_tokenizer(TEXTS, 100, 16).get_vocab()
    with pytest.raises(DataError, match="No word occurs 2 times in the training texts"):
        train_word_tokenizer(["every word once"], vocab_size=100, max_length=16)


def test_saved_and_loaded_is_the_same(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, "", "the world #39;s \\ unknown", "oil " * 100]
    assert loaded(texts, truncation=True, padding=True) == tokenizer(texts, truncation=True, padding=True)
    assert loaded.model_max_length == 16
    assert loaded.padding_side == "right"
    assert loaded.model_input_names == ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0.0), ("  \n", 0.0), ("oil falls", 0.0), ("oil zebra", 0.5), ("Добрый день", 1.0), ("x" * 100_000, 1.0)],
)
def test_unknown_share(tokenizer, text, share):
    assert unknown_share(tokenizer, text) == share
