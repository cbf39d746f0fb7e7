"""The heat map's maths against a slow loop, and its sums against the rerankers it explains."""

from __future__ import annotations

import numpy as np
import pytest

from biorag.api.session import Session
from biorag.errors import UsageError
from biorag.models.late_interaction import LateInteraction, StoredLateInteraction, mean_maxsim
from biorag.retrieval.heat_map import NO_WORD, owners_of, shares, token_matches, word_spans
from biorag.settings.sources import load_settings
from tests.cli import invoke, succeeded

QUESTION = "Why is pyridoxine given together with isoniazid?"


def test_token_matches_are_those_of_a_slow_loop():
    rng = np.random.default_rng(0)
    query, passage = rng.normal(size=(5, 8)).astype(np.float32), rng.normal(size=(7, 8)).astype(np.float32)
    places, similarities = token_matches(query, passage)
    for row, place, similarity in zip(query, places, similarities, strict=True):
        products = [float(np.dot(row, other)) for other in passage]
        assert place == products.index(max(products))
        assert similarity == pytest.approx(max(products), abs=1e-5)
    assert similarities.mean() == pytest.approx(mean_maxsim(query, [passage])[0], abs=1e-6)


def test_a_passage_without_tokens_matches_nothing():
    places, similarities = token_matches(np.ones((3, 2), np.float32), np.empty((0, 2), np.float32))
    assert (places.tolist(), similarities.tolist()) == ([0, 0, 0], [0.0, 0.0, 0.0])


def test_shares_sum_up_to_the_mean():
    similarities = np.array([0.2, 0.4, 0.6, 0.8], np.float32)
    of_words, rest = shares(similarities, np.array([NO_WORD, 0, 0, 2]), 3)
    assert of_words == pytest.approx([0.25, 0.0, 0.2])
    assert rest == pytest.approx(0.05)
    assert of_words.sum() + rest == pytest.approx(similarities.mean())


def test_a_token_belongs_to_the_word_in_which_it_begins():
    text = "IL-6  in mice."
    words = word_spans(text)
    assert [text[start:end] for start, end in words] == ["IL-6", "in", "mice."]
    spans = [(0, 0), (0, 2), (2, 3), (3, 4), (6, 8), (9, 13), (13, 14), (4, 5)]
    assert owners_of(spans, words).tolist() == [NO_WORD, 0, 0, 0, 1, 2, 2, NO_WORD]


@pytest.fixture(scope="module")
def sessions(demo_home, tmp_path_factory):
    """Sessions on the demonstration corpus: token vectors kept compact, kept full and not kept."""
    home = tmp_path_factory.mktemp("homes")
    opened = {"compact": Session(load_settings({"home": demo_home, "name": "default"}, None))}
    for name, words in (("full", ["--store-tokens", "full"]), ("none", ["--no-store-tokens"])):
        succeeded(invoke("index", "demo", "--name", name, *words, home=home))
        opened[name] = Session(load_settings({"home": home, "name": name}, None))
    yield opened
    for session in opened.values():
        session.close()


@pytest.mark.parametrize("kept", ["compact", "full", "none"])
@pytest.mark.parametrize("question", [QUESTION, "β-blockers: what for?"])
def test_the_sums_are_the_scores_of_the_reranker(sessions, kept, question):
    session = sessions[kept]
    (reranker,) = session._models().retriever._rerankers
    assert type(reranker) is (LateInteraction if kept == "none" else StoredLateInteraction)
    snippets = [hit.snippet for hit in session.search(question).hits[:3]]
    scores = reranker.score_all([question], [snippets])[0]
    for snippet, score in zip(snippets, scores, strict=True):
        explained = session.heat_map(question, snippet.id)
        assert sum(match.share for match in explained.words) + explained.rest == pytest.approx(score, abs=1e-4)
        assert explained.score == pytest.approx(score, abs=1e-4)
        assert sum(share for _, share in explained.passage) <= explained.score
        assert explained.stored is (kept != "none")


def test_a_word_is_matched_by_itself(sessions):
    explained = sessions["none"].heat_map(QUESTION, "demo_044")
    matched = {QUESTION[slice(*match.span)]: explained.text[slice(*match.matched)] for match in explained.words}
    assert matched["pyridoxine"].lower() == "pyridoxine"
    assert matched["isoniazid?"] == "Isoniazid"


@pytest.mark.long
def test_a_long_question_and_a_long_snippet_are_cut_as_the_reranker_cuts_them(sessions, session_with_long_snippet):
    session = session_with_long_snippet
    question = "What does pyridoxine prevent in people who take isoniazid? " * 60
    (reranker,) = session._models().retriever._rerankers
    (snippet,) = session.show("long").snippets
    explained = session.heat_map(question, "long")
    assert explained.score == pytest.approx(reranker.score_all([question], [[snippet]])[0][0], abs=1e-4)
    assert explained.words[-1].matched is None, "the window ends before it"


@pytest.fixture(scope="module")
def session_with_long_snippet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    text = "Isoniazid takes vitamin B6, and pyridoxine brings it back. " * 80
    (folder / "corpus.jsonl").write_text(f'{{"id": "long", "title": "Long", "content": "{text}"}}\n')
    succeeded(invoke("index", folder / "corpus.jsonl", "--name", "long", home=folder / "home"))
    with Session(load_settings({"home": folder / "home", "name": "long"}, None)) as session:
        yield session


def test_only_late_interaction_over_the_encoder_is_explained(demo_home):
    settings = load_settings({"home": demo_home, "name": "default", "rerank": False}, None)
    with Session(settings) as session, pytest.raises(UsageError, match="only the reranker 'encoder'"):
        session.heat_map(QUESTION, "demo_044")


def test_heat_map_of_encoded_tokens_is_json(sessions):
    document = sessions["none"].heat_map("isoniazid", "demo_044").to_json()
    assert set(document) == {"question", "id", "text", "score", "rest", "words"}
    (word,) = document["words"]
    assert word["span"] == [0, 9]
    assert document["text"][slice(*word["matched_span"])] == word["matched"]
