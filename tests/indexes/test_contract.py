"""One contract for every store: embedded Edge, a server's stand-in, and a real server where one is named.

BM25 and dense scores are held against slow references written here from the formulas.
"""

import json
import math
import os
import re
import uuid
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from qdrant_client import QdrantClient
from qdrant_edge import Bm25, Bm25Config

from biorag.corpus.readers import parse_snippet
from biorag.indexes.collection import Collection
from biorag.indexes.connection import connect
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.manifest import Bm25Parameters, Manifest, TokenParameters
from biorag.indexes.server import ServerIndex
from biorag.retrieval.filters import parse_filter
from biorag.settings.settings import Settings
from biorag.types import AnyOf, EncoderIdentity, FieldFilter, IndexQuery, ScoredDoc, Snippet
from biorag.utils.network import Server
from tests.qdrant_standin import MemoryEngine

SERVER = os.environ.get("BIORAG_TEST_QDRANT_URL")
# Of a cluster: one shard, whose replicas all nodes of two hold. Several shards count terms each on their own, so that
# BM25's IDF would not be the reference's.
LAYOUT = {"shards": 1, "replicas": int(os.environ.get("BIORAG_TEST_QDRANT_REPLICAS", "1"))}
STORES = ["edge", "memory"] + (["server"] if SERVER else [])
DIMENSION = 16
K, B = 0.9, 0.4
WORDS = (
    "liver livers heart hearts kidney virus viral infection infected gene genes protein fever aspirin the of in "
    "treatment treated patients randomized trial statin cholesterol insulin glucose β-blocker naïve HMG-CoA p53 5.5"
)
VOCABULARY = WORDS.split()

pytestmark = pytest.mark.filterwarnings("ignore:Local mode performs exact")


def manifest(
    similarity: str = "cosine", avg_len: float = 12.0, name: str = "test", tokens: TokenParameters | None = None
) -> Manifest:
    return Manifest(
        name=name,
        encoder=EncoderIdentity("random", "", "f" * 64, DIMENSION),
        similarity=similarity,
        quantized=False,
        bm25=Bm25Parameters(K, B, avg_len),
        store={"kind": "edge"},
        created="",
        updated="",
        tokens=tokens,
    )


@pytest.fixture(params=STORES)
def make_index(request, tmp_path):
    """Makes an empty writable index of the store; all are closed at the end."""
    made = []

    def make(similarity: str = "cosine", avg_len: float = 12.0, tokens: TokenParameters | None = None):
        name = f"biorag-test-{uuid.uuid4()}"
        wanted = manifest(similarity, avg_len, name, tokens)
        if request.param == "edge":
            index = EdgeIndex(tmp_path / name, wanted, writable=True)
        else:
            client = connect(Server(SERVER, 30, 5)) if request.param == "server" else MemoryEngine()
            asked = Settings.of(**LAYOUT if request.param == "server" else {})
            index = ServerIndex(Collection(client, name, asked), wanted, writable=True)
        made.append((name, index))
        return index

    yield make
    for name, index in made:
        if request.param == "server":
            QdrantClient(SERVER).delete_collection(name)
        index.close()


@pytest.fixture
def empty_index(make_index):
    return make_index()


@pytest.fixture
def index(make_index, snippets):
    """The twelve snippets under random vectors."""
    made = make_index()
    made.upsert(snippets, random_vectors(len(snippets)))
    return made


def random_vectors(count: int, seed: int = 0) -> np.ndarray:
    """Vectors of unlike lengths, so that dot and cosine differ; shape (count, DIMENSION)."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, DIMENSION)) * rng.uniform(0.5, 2, size=(count, 1))).astype(np.float32)


def random_snippets(count: int, seed: int = 0) -> list[Snippet]:
    rng = np.random.default_rng(seed)
    return [
        Snippet(f"r{place:03d}", "", "heart " + " ".join(rng.choice(VOCABULARY, size=rng.integers(2, 40))), place + 1)
        for place in range(count)
    ]


# --- slow references


def reference_dense(ids, vectors, query, similarity) -> dict[str, float]:
    """Every id's similarity to the query, one at a time in float64."""
    scores = {}
    for id, vector in zip(ids, vectors.astype(np.float64), strict=True):
        score = sum(float(a) * float(b) for a, b in zip(vector, query, strict=True))
        if similarity == "cosine":
            score /= math.sqrt(sum(float(a) ** 2 for a in vector)) * math.sqrt(sum(float(b) ** 2 for b in query))
        scores[id] = score
    return scores


def terms(text: str) -> list[int]:
    """The ids of a text's terms, repeats kept: each word goes through Qdrant's tokenizer alone."""
    words = Bm25(Bm25Config(language="english"))
    return [id for word in re.findall(r"[^\W_]+", text) for id in words.embed_query(word).indices]


def reference_bm25(docs: dict[str, str], query: str, avg_len: float) -> dict[str, float]:
    """BM25 of all documents that share a term with the query.

    Qdrant's IDF is ln(1 + (N - n + 0.5) / (n + 0.5)); the weight of a term that occurs tf times in a
    document of L terms is tf (k + 1) / (tf + k (1 - b + b L / avg_len)).
    """
    counts = {id: Counter(terms(text)) for id, text in docs.items()}
    scores: dict[str, float] = {}
    for term in set(terms(query)):
        having = [id for id, count in counts.items() if term in count]
        idf = math.log(1 + (len(docs) - len(having) + 0.5) / (len(having) + 0.5))
        for id in having:
            tf, length = counts[id][term], counts[id].total()
            weight = tf * (K + 1) / (tf + K * (1 - B + B * length / avg_len))
            scores[id] = scores.get(id, 0.0) + idf * weight
    return scores


def assert_top(found: list[ScoredDoc], expected: dict[str, float], limit: int) -> None:
    """The hits are the best of the reference with its scores; ids may differ only where scores tie."""
    best = sorted(expected.values(), reverse=True)[:limit]
    assert [scored.score for scored in found] == pytest.approx(best, rel=1e-4, abs=1e-4)
    assert {scored.id: scored.score for scored in found} == pytest.approx(
        {scored.id: expected[scored.id] for scored in found}, rel=1e-4, abs=1e-4
    )
    assert len({scored.id for scored in found}) == len(found)
    assert found == sorted(found, key=lambda scored: (-scored.score, scored.id))


# --- storing


def test_an_empty_index_answers(empty_index):
    assert (empty_index.count(), list(empty_index.ids())) == (0, [])
    assert empty_index.search([IndexQuery("liver", 5), IndexQuery(random_vectors(1)[0], 5)]) == [[], []]
    assert empty_index.fetch(["a"]) == empty_index.digests(["a"]) == {}
    assert empty_index.fetch([]) == empty_index.digests([]) == {}
    assert empty_index.dense_vectors(["a"]) == empty_index.dense_vectors([]) == {}


def test_ids_lists_every_snippet_once(index, snippets, monkeypatch):
    for module in ("edge", "server", "points"):
        monkeypatch.setattr(f"biorag.indexes.{module}.SCROLL", 5)
    assert sorted(index.ids()) == sorted(snippet.id for snippet in snippets)
    assert list(index.ids()) == list(index.ids())


@pytest.mark.parametrize("optimized", [False, True])
def test_what_is_deleted_or_replaced_is_gone_everywhere(index, snippets, optimized):
    vectors = random_vectors(len(snippets))
    changed = Snippet("s3", "Rosiglitazone", "Rosiglitazone raises insulin sensitivity.", None, {"year": 1900})
    vectors[3] = random_vectors(1, seed=77)[0]
    index.upsert([changed], vectors[3:4])
    index.delete(["s5", "never there"])
    if optimized:
        index.optimize()
    now = {s.id: changed if s.id == "s3" else s for s in snippets if s.id != "s5"}
    assert (index.count(), sorted(index.ids())) == (11, sorted(now))
    assert index.fetch(["s3", "s4", "s5"]) == {"s3": changed, "s4": snippets[4]}
    assert index.digests(["s3", "s5"]) == {"s3": changed.digest}
    if optimized:  # until then the engine counts the words of what is gone
        docs = {id: snippet.contents for id, snippet in now.items()}
        for query in ("rosiglitazone", "glucose liver", "insulin"):
            assert_top(index.search([IndexQuery(query, 12)])[0], reference_bm25(docs, query, 12.0), 12)
    assert index.search([IndexQuery("metformin malaria", 12)]) == [[]]
    (found,) = index.search([IndexQuery(vectors[3], 12)])
    kept = [place for place, snippet in enumerate(snippets) if snippet.id != "s5"]
    assert_top(found, reference_dense(now, vectors[kept], vectors[3], "cosine"), 12)
    assert index.search([IndexQuery(vectors[3], 12, where=(FieldFilter("year", "=", 2003),))]) == [[]]


json_texts = st.text(st.characters(codec="utf-8"), max_size=12)
# The engine's JSON reader may miss a float of 17 digits by its last bit; what people write comes back exactly.
json_numbers = st.integers() | st.decimals(-(10**9), 10**9, places=4).map(float)
json_values = st.recursive(
    st.none() | st.booleans() | json_numbers | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=6,
)


def nested(depth: int):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


@settings(derandomize=True, deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(id=json_texts, title=json_texts, content=json_texts, fields=st.dictionaries(json_texts, json_values, max_size=4))
@example("a", "", "b", {"x": 2**64})
@example("a", "", "b", {"x": -(2**63) - 1})
@example("a", "", "b", {"x": nested(300)})
def test_every_line_the_reader_takes_is_stored_and_comes_back_whole(empty_index, id, title, content, fields):
    line = json.dumps({**fields, "id": id, "title": title, "content": content}).encode()
    try:
        snippet = parse_snippet(line)
    except ValueError:
        assume(False)
    empty_index.upsert([snippet], random_vectors(1))
    back = empty_index.fetch([snippet.id])
    assert back == {snippet.id: snippet}
    assert back[snippet.id].digest == snippet.digest


# --- dense search


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_dense_search_is_brute_force(make_index, similarity):
    index, given, vectors = make_index(similarity), random_snippets(100), random_vectors(100)
    index.upsert(given, vectors)
    index.optimize()
    for limit, query in product([1, 10, 100, 1000], random_vectors(5, seed=1)):
        (found,) = index.search([IndexQuery(query, limit)])
        assert_top(found, reference_dense([s.id for s in given], vectors, query, similarity), limit)
        assert len(found) == min(limit, 100)


# --- BM25


# The second stands in every document.
BM25_QUERIES = [
    "Livers LIVER",
    "heart",
    "treatment of viral infections",
    "β-blocker",
    "naïve HMG-CoA p53 5.5",
    "gene gene",
]


@pytest.mark.parametrize("avg_len", [5.0, 40.0])
def test_bm25_search_is_the_formula(make_index, avg_len):
    index, given = make_index(avg_len=avg_len), random_snippets(100)
    index.upsert(given, random_vectors(100))
    index.optimize()
    docs = {s.id: s.contents for s in given}
    for limit, query in product([3, 100], BM25_QUERIES):
        assert_top(index.search([IndexQuery(query, limit)])[0], reference_bm25(docs, query, avg_len), limit)


# --- restrictions


def test_probes_are_answered_in_order_each_as_if_alone(index):
    probes = [
        IndexQuery("glucose", 3),
        IndexQuery(random_vectors(1, seed=3)[0], 5),
        IndexQuery("zzzz", 3),
        IndexQuery("heart", 2, among=frozenset({"s10", "s3"})),
        IndexQuery(random_vectors(1, seed=4)[0], 4, where=(FieldFilter("type", "=", "Trial"),)),
    ]
    together = index.search(probes)
    assert together == [index.search([probe])[0] for probe in probes]
    assert [len(hits) for hits in together] == [2, 5, 0, 1, 4]
    assert index.search([]) == []


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_among_restricts_and_gives_true_scores(make_index, similarity):
    index, given, vectors = make_index(similarity), random_snippets(100), random_vectors(100)
    index.upsert(given, vectors)
    index.optimize()
    docs, chosen = {s.id: s.contents for s in given}, frozenset({"r003", "r050", "r051", "r099", "unknown"})
    query = random_vectors(1, seed=9)[0]
    dense = reference_dense(docs, vectors, query, similarity)
    sparse = reference_bm25(docs, "viral infection of the liver", 12.0)
    found_dense, found_sparse, none = index.search(
        [
            IndexQuery(query, 10, among=chosen),
            IndexQuery("viral infection of the liver", 10, among=chosen),
            IndexQuery(query, 10, among=frozenset()),
        ]
    )
    assert_top(found_dense, {id: score for id, score in dense.items() if id in chosen}, 10)
    assert_top(found_sparse, {id: score for id, score in sparse.items() if id in chosen}, 10)
    assert none == []


FIELDS = {
    "f0": {"year": 2000, "impact": 1.5, "open": True, "journal": "The Lancet", "mesh": ["Liver", "Heart"]},
    "f1": {"year": 2005, "impact": 3.0, "open": False, "journal": "Gut", "mesh": ["Liver"]},
    "f2": {"year": 2010, "impact": 3, "open": True, "journal": "gut", "nested": {"deep": {"n": 4}}},
    "f3": {"year": 2015, "impact": -2.25, "open": False, "journal": "Cœur", "nested": {"deep": {"n": 5}}},
    "f4": {"year": "2015", "impact": None, "journal": 7},
    "f5": {"Study Design": "RCT", "p-value": 0.05, "nested": {"a.b": "Gut"}},
}
CONDITIONS = [
    (FieldFilter("year", "=", 2005), {"f1"}),
    (FieldFilter("year", ">=", 2010), {"f2", "f3"}),
    (FieldFilter("year", ">", 2010), {"f3"}),
    (FieldFilter("year", "<", 2005), {"f0"}),
    (FieldFilter("year", "<", 2005.5), {"f0", "f1"}),
    (FieldFilter("year", "=", 2005.0), {"f1"}),
    (FieldFilter("year", "=", 1999), set()),
    (FieldFilter("impact", "=", 3), {"f1", "f2"}),
    (FieldFilter("impact", ">=", 1.5), {"f0", "f1", "f2"}),
    (FieldFilter("impact", "<", 0), {"f3"}),
    (FieldFilter("open", "=", True), {"f0", "f2"}),
    (FieldFilter("open", "=", False), {"f1", "f3"}),
    (FieldFilter("journal", "=", "The Lancet"), {"f0"}),
    (FieldFilter("journal", "=", "Gut"), {"f1", "f2"}),
    (FieldFilter("journal", "=", "Cœur"), {"f3"}),
    (FieldFilter("journal", "=", 7), {"f4"}),
    (FieldFilter("journal", "~", "lancet"), {"f0"}),
    (FieldFilter("journal", "~", "cœUR"), {"f3"}),
    (FieldFilter("journal", "~", "Lan"), set()),
    (FieldFilter("mesh", "~", "HEART"), {"f0"}),
    (FieldFilter("title", "~", "title F3"), {"f3"}),
    (FieldFilter("title", "~", "f3 title"), set()),
    (FieldFilter('nested."a.b"', "~", "gut"), {"f5"}),
    (FieldFilter("year", "=", "2015"), {"f4"}),
    (FieldFilter("mesh", "=", "Liver"), {"f0", "f1"}),
    (FieldFilter("nested.deep.n", ">", 3), {"f2", "f3"}),
    (FieldFilter('"Study Design"', "=", "RCT"), {"f5"}),
    (FieldFilter('"p-value"', "<", 0.1), {"f5"}),
    (FieldFilter('nested."a.b"', "=", "Gut"), {"f5"}),
    (FieldFilter('"nested.deep.n"', "=", 5), set()),
    (FieldFilter("no_such_field", "=", 1), set()),
    (FieldFilter("id", "=", "f3"), {"f3"}),
    (FieldFilter("pmid", "=", 104), {"f4"}),
    (FieldFilter("pmid", "<", 102), {"f0", "f1"}),
    (FieldFilter("pmid", "in", (100, 103, 999)), {"f0", "f3"}),
    (FieldFilter("year", "in", (2000, 2015)), {"f0", "f3"}),
    (FieldFilter("year", "<", 10**30), {"f0", "f1", "f2", "f3"}),
    (FieldFilter("year", "=", 10**30), set()),
    (FieldFilter("year", ">=", -(10**30)), {"f0", "f1", "f2", "f3"}),
    (*parse_filter("year<2005 or impact=3"), {"f0", "f1", "f2"}),
    (*parse_filter("open and year>2000 or journal=7"), {"f2", "f4"}),
    (AnyOf((parse_filter("not year>2000"),)), {"f0", "f4", "f5"}),
    (AnyOf((parse_filter("not (mesh=liver or mesh=heart) and pmid>102"),)), {"f3", "f4"}),
]


@pytest.fixture
def fielded(make_index):
    index = make_index()
    given = [
        Snippet(id, f"Title {id}", f"liver {id}", 100 + place if id != "f5" else None, fields)
        for place, (id, fields) in enumerate(FIELDS.items())
    ]
    index.upsert(given, random_vectors(len(given)))
    return index


def test_conditions_hold_for_dense_and_bm25_and_turned_round(fielded):
    wrong = []
    for condition, expected in CONDITIONS:
        turned = replace(condition, negated=True)
        for query in (random_vectors(1)[0], "liver"):
            held, not_held = fielded.search(
                [IndexQuery(query, 9, where=(condition,)), IndexQuery(query, 9, where=(turned,))]
            )
            if {s.id for s in held} != expected or {s.id for s in not_held} != FIELDS.keys() - expected:
                wrong.append((condition, sorted(s.id for s in held), sorted(s.id for s in not_held)))
    assert wrong == []


# --- token vectors


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("kept", "width", "precision"), [("full", 8, 0.001), ("compact", 128, 0.03)])
def test_a_query_of_token_vectors_gives_the_maxsim_of_each_candidate(make_index, kept, width, precision):
    index = make_index(tokens=TokenParameters("encoder", "", "f" * 64, width, 1, kept))
    rng = np.random.default_rng(3)
    given = random_snippets(300)  # more than are handed over at once
    tokens = [unit(rng.normal(size=(count % 7, width))) for count in range(len(given))]
    index.upsert(given, random_vectors(len(given)), tokens)
    index.optimize()
    query = unit(rng.normal(size=(5, width)))
    among = frozenset(snippet.id for snippet in given[::10])
    [found] = index.search([IndexQuery(query, len(among), among=among)])
    expected = {
        snippet.id: float((query @ rows.T).max(axis=1).sum()) if len(rows) else 0.0
        for snippet, rows in zip(given, tokens, strict=True)
        if snippet.id in among
    }
    assert {id for id, _ in found} == set(among)
    for id, score in found:
        assert score == pytest.approx(expected[id], abs=5 * precision)  # of five tokens
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    # The other two kinds of search do not see them.
    dense, bm25 = index.search([IndexQuery(random_vectors(1)[0], 3), IndexQuery("heart", 3)])
    assert len(dense) == len(bm25) == 3


@pytest.mark.parametrize(("kept", "width"), [(None, 0), ("full", 8), ("compact", 128)])
def test_vectors_come_back_as_they_can_be_stored_again(make_index, monkeypatch, kept, width):
    """What is read and written once more is what was read: a four-bit number's loss is not repeated."""
    monkeypatch.setattr("biorag.indexes.points.NUMBERS", 10_000)  # so that they are read in parts
    parameters = TokenParameters("encoder", "", "f" * 64, width, 1, kept) if kept else None
    first, second = make_index("dot", tokens=parameters), make_index("dot", tokens=parameters)
    rng = np.random.default_rng(3)
    given, dense = random_snippets(20), random_vectors(20)
    tokens = [unit(rng.normal(size=(count % 7, width))) for count in range(20)] if kept else []
    first.upsert(given, dense, tokens)
    first.optimize()
    vectors = first.vectors([*(snippet.id for snippet in given), "unknown"])
    assert list(vectors) == [snippet.id for snippet in given]
    for place, (vector, rows) in enumerate(vectors.values()):
        np.testing.assert_array_equal(vector, dense[place])
        if kept:
            wanted = tokens[place] if len(tokens[place]) else np.zeros((1, width))
            np.testing.assert_allclose(rows, wanted, atol=0.1 if kept == "compact" else 0.001)
        else:
            assert rows is None
    rows_of_each = [rows for _, rows in vectors.values() if rows is not None]
    second.upsert(given, np.stack([vector for vector, _ in vectors.values()]), rows_of_each)
    again = second.vectors(list(vectors))
    for id, (vector, rows) in vectors.items():
        np.testing.assert_array_equal(again[id][0], vector)
        if kept:
            np.testing.assert_allclose(again[id][1], rows, atol=1e-6)
    assert first.vectors([]) == first.vectors(["unknown"]) == {}


# --- text in the form in which it is compared ---

SPELLINGS = [  # (in the corpus, in the query)
    ("Sj\u00f6gren syndrome", "Sjo\u0308gren"),
    ("Sjo\u0308gren syndrome", "Sj\u00f6gren"),
    ("a dose in \u00b5mol here", "\u03bcmol"),
    ("an e\ufb00ect seen", "effect"),
    ("an effect seen", "e\ufb00ect"),
    ("\uff23\uff32\uff30 rose", "crp"),
    ("hyper\u00adtension treated", "hypertension"),
    ("hypertension treated", "hyper\u00adten\u200bsion"),
    ("IL\u20116 fell", "IL-6"),
    ("Stra\u00dfe closed", "STRASSE"),
]


def test_texts_and_keywords_are_found_in_any_spelling(make_index):
    snippets = [
        Snippet(f"s{n}", "", written, None, {"journal": written, "mesh": ["other", written], "deep": {"er": written}})
        for n, (written, _) in enumerate(SPELLINGS)
    ]
    index = make_index()
    index.upsert(snippets, random_vectors(len(snippets)))
    for n, (written, asked) in enumerate(SPELLINGS):
        probes = [IndexQuery(asked, 20)]
        for field in ("journal", "mesh", "deep.er"):
            where = (FieldFilter(field, "=", written.upper()),)
            probes.append(IndexQuery(random_vectors(1)[0], 20, where=where))
        assert [f"s{n}" in {hit.id for hit in hits} for hits in index.search(probes)] == [True] * 4, (written, asked)
    assert index.fetch(["s0"])["s0"] == snippets[0], "it is shown as it stands"
