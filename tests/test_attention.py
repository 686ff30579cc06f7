import pytest
import torch

from bba.attention import by_word, head_attention
from bba.errors import BBAError
from bba.model import Setting

TEXT = "hat? tom:hat mia:hat zoe:hat"


def test_weights_equal_those_of_the_gated_dense_model(classifier, model):
    ids = torch.tensor([classifier.encode([TEXT])[0].ids])
    gates = model.gates.hard(0.5)
    with torch.inference_mode():
        gated = model(ids, head_gates=gates, output_attentions=True).attentions
    for layer, heads in enumerate(classifier.at(0.5).config.heads):
        for place, head in enumerate(heads):
            weights = head_attention(classifier, TEXT, Setting(0.5), layer, head).weights
            torch.testing.assert_close(weights, gated[layer][0, place], atol=1e-5, rtol=0)


def test_weights_equal_a_computation_by_hand(classifier, model):
    layer, size = model.encoder.layers[0], model.config.head_size
    attention = head_attention(classifier, TEXT, Setting(1.0), 0, 2)
    with torch.inference_mode():
        hidden = model.encoder.embeddings(torch.tensor([classifier.encode([TEXT])[0].ids]), None)[0]
        query, key, _ = layer.attention.qkv(hidden).chunk(3, dim=-1)
        part = slice(2 * size, 3 * size)
        expected = (query[:, part] @ key[:, part].T / size**0.5).softmax(dim=-1)
    torch.testing.assert_close(attention.weights, expected, atol=1e-5, rtol=0)
    assert attention.tokens == ["[CLS]", *TEXT.split(), "[SEP]"]


@pytest.mark.parametrize(("layer", "head"), [(0, 99), (9, 0), (-1, 0)])
def test_a_head_that_is_not_open_gets_one_sentence(classifier, layer, head):
    with pytest.raises(BBAError, match=f"Head {head} of layer {layer} is not open at budget 0.5"):
        head_attention(classifier, TEXT, Setting(0.5), layer, head)


@pytest.mark.parametrize("text", ["tom:hat " * 100, "😀 <b>x</b> שלום $x$\0 tom:hat", "\ud800 hat?"])
def test_odd_and_long_texts_keep_their_own_words(classifier, text):
    ids = classifier.encode([text])[0].ids
    layer, heads = next((layer, heads) for layer, heads in enumerate(classifier.at(0.5).config.heads) if heads)
    attention = head_attention(classifier, text, Setting(0.5), layer, heads[0])
    assert len(attention.tokens) == len(attention.words) == len(attention.unknown) == len(ids)
    assert attention.weights.shape == (len(ids), len(ids))
    assert attention.tokens[0] == "[CLS]"
    assert attention.tokens[-1] == "[SEP]"
    assert all(token in text.replace("\ud800", "?") for token in attention.tokens[1:-1])


def test_pieces_of_a_word_are_taken_together(classifier):
    attention = head_attention(classifier, TEXT, Setting(1.0), 0, 2)
    joined = type(attention)(["[CLS]", "un", "seen", "[SEP]"], [0, 1, 1, 2], [False] * 4, torch.rand(4, 4).softmax(-1))
    words, weights = by_word(joined)
    assert words == ["[CLS]", "unseen", "[SEP]"]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3))
    torch.testing.assert_close(weights[0, 1], joined.weights[0, 1:3].sum())
    torch.testing.assert_close(weights[1, 0], joined.weights[1:3, 0].mean())
