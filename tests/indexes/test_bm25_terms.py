"""BM25 over bioclean's words, word pieces and their bigrams against a slow count of terms."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from biorag.engine import open_index
from biorag.indexes.bm25 import Bm25Encoder, LengthCounter, bioclean, piece_speller
from biorag.indexes.manifest import Bm25Parameters
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.types import IndexQuery
from tests.cli import done, failed, invoke

K, B = 0.9, 0.4
TEXTS = [
    "Aspirin lowers fever, and fever is pain.",
    "Heparin, the heart and the lung",
    "",
    "the",
    "liver liver LIVER gene",
]


def terms_of(folder, text: str, terms: str) -> list[str]:
    """The slow, obvious terms: the tokenizer's own pieces, and each pair of neighbours."""
    if terms == "bioclean":
        return "".join(sign for sign in text.lower() if sign.isalnum() or sign in " -").split()
    pieces = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.lower(), add_special_tokens=False).tokens
    return pieces + ([f"{one} {two}" for one, two in pairwise(pieces)] if terms == "bigrams" else [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What is IL-2's role (in vivo)?", "what is il-2s role in vivo"),
        ('5-HT_{2A} and "TNF-α": 10% w/v;\n\tp<=0.05 @ 37\\C', "5-ht2a and tnf-α 10 wv p005 37c"),
        ("[ ] ?!", ""),
    ],
)
def test_bioclean_has_the_words_of_bioasq_s_script(text, words):
    assert bioclean(text) == words


@pytest.mark.parametrize("terms", ["pieces", "bigrams"])
def test_weights_are_the_formula_s_over_the_terms(tiny_encoder, terms):
    spell = piece_speller(find_encoder(str(tiny_encoder)), terms)
    parameters = Bm25Parameters(K, B, 7.0, terms=terms)
    encoder, length_of = Bm25Encoder(parameters, spell), LengthCounter(spell=spell)
    for text in TEXTS:
        count = Counter(terms_of(tiny_encoder, text, terms))
        length = count.total()
        weights = [tf * (K + 1) / (tf + K * (1 - B + B * length / 7.0)) for tf in count.values()]
        assert sorted(encoder.document(text).values) == pytest.approx(sorted(weights), rel=1e-5)
        assert len(encoder.query(text).indices) == len(count), "stop words and punctuation are terms too"
        assert length_of(text) == length
    one, two = encoder.query("fever pain"), encoder.query("pain fever")
    assert (set(one.indices) == set(two.indices)) == (terms == "pieces"), "of bigrams the order counts"


def slow_scores(folder, texts: dict[str, str], query: str, terms: str) -> dict[str, float]:
    counts = {id: Counter(terms_of(folder, text, terms)) for id, text in texts.items()}
    mean = round(sum(map(Counter.total, counts.values())) / len(counts), 2)
    scores = Counter()
    for term in set(terms_of(folder, query, terms)):
        having = [id for id in counts if term in counts[id]]
        idf = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for id in having:
            tf = counts[id][term]
            scores[id] += idf * tf * (K + 1) / (tf + K * (1 - B + B * counts[id].total() / mean))
    return dict(scores)


@pytest.mark.parametrize("terms", ["bioclean", "bigrams"])
def test_an_index_searches_by_the_terms_it_was_made_with(tiny_encoder, corpus_file, snippets, tmp_path, terms):
    made = done(invoke("index", corpus_file, "--encoder", tiny_encoder, "--bm25-terms", terms, "--json"))
    assert made["snippets"] == len(snippets)
    manifest = done(invoke("info", "default", "--json"))
    assert manifest["bm25"]["terms"] == terms
    texts = {snippet.id: snippet.contents for snippet in snippets}
    with open_index(Settings.of(home=tmp_path / "home", mode="bm25", rerank=False)) as opened:
        for query in ("vitamin K and the liver", "heart rate"):
            (found,) = opened.index.search([IndexQuery(query, 12)])
            assert dict(found) == pytest.approx(slow_scores(tiny_encoder, texts, query, terms), rel=1e-4)
    failed(invoke("index", corpus_file, "--bm25-terms", "words"), 5, terms, "words", "--bm25-terms")
    assert done(invoke("index", corpus_file, "--json"))["unchanged"] == len(snippets)


def test_a_changed_tokenizer_is_refused(tiny_encoder, corpus_file, tmp_path):
    done(invoke("index", corpus_file, "--encoder", tiny_encoder, "--bm25-terms", "pieces", "--json"))
    path = tmp_path / "home" / "indexes" / "default" / "manifest.json"
    values = json.loads(path.read_bytes())
    values["encoder"]["configuration"]["tokenizer"] = "0" * 64
    path.write_text(json.dumps(values))
    failed(invoke("search", "liver", "--mode", "bm25", "--no-rerank"), 5, "tokenizer has changed")
