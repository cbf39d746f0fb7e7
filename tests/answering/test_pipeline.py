"""Retrieval and answering, from end to end, over indexes small enough to compute by hand."""

import json
import math
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from biorag.answering.answerer import ANSWER_MARGIN, CACHED_NOTE, RETRIES, Answerer, PromptTooLongError
from biorag.generators.cache import CachedGenerator
from biorag.prompts.template import load_template
from biorag.retrieval.filters import exclude_pmids, parse_filter
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.types import GREEDY, Question, ScoredDoc, Snippet
from tests.fakes import HashEncoder, OverlapReranker, ScriptedGenerator

# Words that Qdrant's tokenizer and stemmer keep apart, so that BM25 can be computed from the words themselves.
WORDS = [
    "aspirin",
    "warfarin",
    "heparin",
    "liver",
    "kidney",
    "heart",
    "lung",
    "fever",
    "pain",
    "gene",
    "virus",
    "blood",
]
BM25_K, BM25_B = 0.9, 0.4
QUERY = "heparin fever blood"


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class MemoryIndex:
    """The slow, obvious index: every snippet is scored for every probe. Keeps the probes."""

    def __init__(self, snippets, vectors) -> None:
        self.snippets = {snippet.id: snippet for snippet in snippets}
        self.vectors = {snippet.id: vector for snippet, vector in zip(snippets, vectors, strict=True)}
        self.counts = {snippet.id: Counter(words(snippet.contents)) for snippet in snippets}
        # The manifest keeps two digits of it.
        self.mean = round(sum(map(Counter.total, self.counts.values())) / max(len(self.counts), 1), 2)
        self.probes = []

    def dense(self, vector, id: str) -> float:
        return float(sum(float(a) * float(b) for a, b in zip(vector, self.vectors[id], strict=True)))

    def bm25(self, query: str, id: str) -> float:
        """Σ idf · tf (k + 1) / (tf + k (1 − b + b · length / mean length)), over the query's distinct words."""
        count, total = self.counts[id], 0.0
        for word in set(words(query)):
            frequency = sum(word in other for other in self.counts.values())
            idf = math.log((len(self.counts) - frequency + 0.5) / (frequency + 0.5) + 1)
            norm = BM25_K * (1 - BM25_B + BM25_B * count.total() / self.mean)
            total += idf * count[word] * (BM25_K + 1) / (count[word] + norm)
        return total

    def search(self, probes):
        self.probes += probes
        return [self._one(probe) for probe in probes]

    def _one(self, probe):
        found = []
        for id, snippet in self.snippets.items():
            if probe.among is not None and id not in probe.among:
                continue
            if not all(holds(condition, snippet) for condition in probe.where):
                continue
            if isinstance(probe.query, str):
                score = self.bm25(probe.query, id)
                if score == 0.0:
                    continue
            else:
                score = self.dense(probe.query, id)
            found.append(ScoredDoc(id, score))
        return sorted(found, key=lambda scored: (-scored.score, scored.id))[: probe.limit]

    def fetch(self, ids):
        return {id: self.snippets[id] for id in ids if id in self.snippets}

    def dense_vectors(self, ids):
        return {id: self.vectors[id] for id in ids if id in self.vectors}

    def count(self) -> int:
        return len(self.snippets)

    def close(self) -> None:
        pass


def holds(condition, snippet: Snippet) -> bool:
    value = snippet.pmid if condition.field == "pmid" else snippet.metadata.get(condition.field)
    if condition.op == "in":
        result = value in condition.value
    else:
        result = {"=": value == condition.value, ">=": value is not None and value >= condition.value}[condition.op]
    return result != condition.negated


class RecordingReranker(OverlapReranker):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked = []

    def score(self, query, texts):
        self.asked.append((query, list(texts)))
        return super().score(query, texts)


def corpus(size: int = 60) -> list[Snippet]:
    """Snippets of different lengths, so that no two have the same scores."""
    draw = random.Random(5)
    lengths = draw.sample(range(3, 3 + size), size)
    return [
        Snippet(
            f"s{number:02}",
            "",
            " ".join(draw.choices(WORDS, k=lengths[number])),
            100 + number,
            {"year": 2000 + number % 20, "type": "Review" if number % 3 else "Trial"},
        )
        for number in range(size)
    ]


ENCODER = HashEncoder(dimension=16)


@pytest.fixture(scope="module")
def reference() -> MemoryIndex:
    snippets = corpus()
    return MemoryIndex(snippets, ENCODER.encode_snippets([snippet.contents for snippet in snippets]))


@pytest.fixture(scope="module")
def edge(tmp_path_factory, reference):
    """The same corpus in Qdrant Edge."""
    from biorag.indexes.edge import EdgeIndex
    from biorag.indexes.store import Store

    store = Store(Settings.of(home=tmp_path_factory.mktemp("home"), name="edge", bm25_k=BM25_K, bm25_b=BM25_B))
    manifest = store.new_manifest(ENCODER.identity, reference.mean)
    store.folder.mkdir(parents=True)
    index = EdgeIndex(store.folder, manifest, writable=True)
    snippets = list(reference.snippets.values())
    index.upsert(snippets, np.stack([reference.vectors[snippet.id] for snippet in snippets]))
    index.optimize()
    yield index
    index.close()


@pytest.fixture(params=["memory", "edge"])
def index(request, reference):
    if request.param == "edge":
        return request.getfixturevalue("edge")
    return MemoryIndex(list(reference.snippets.values()), list(reference.vectors.values()))


@pytest.fixture
def settings(settings) -> Settings:
    return settings.replace(rerank=False, depth=8, k=10, k_init=10, lambda_=0.1)


def pairs(ranking) -> list[tuple[str, float]]:
    return [(hit.snippet.id, hit.score) for hit in ranking.hits]


def same(found, expected, tolerance=1e-5) -> None:
    """Hold two rankings against each other: equal but for rounding, which may swap equal scores."""
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], atol=tolerance)
    truth = dict(expected)
    assert {id for id, _ in found} == truth.keys()
    np.testing.assert_allclose([truth[id] for id, _ in found], [score for _, score in found], atol=tolerance)


def top(scores, limit):
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


# --- first stage ---


@pytest.mark.parametrize("query", [QUERY, "aspirin kidney kidney virus", "gene unseenword"])
def test_bm25_mode_needs_no_encoder_and_ranks_by_bm25(index, reference, settings, query):
    ranking = Retriever(index, None, None, settings.replace(mode="bm25").retrieval).search(query)
    scores = {id: reference.bm25(query, id) for id in reference.snippets}
    same(pairs(ranking), top({id: score for id, score in scores.items() if score > 0}, 10))


def test_dense_mode_ranks_by_the_dot_product(index, reference, settings):
    ranking = Retriever(index, ENCODER, None, settings.replace(mode="dense").retrieval).search(QUERY)
    vector = ENCODER.encode_queries([QUERY])[0]
    same(pairs(ranking), top({id: reference.dense(vector, id) for id in reference.snippets}, 10))


def sides(reference, query, depth):
    """The two first-stage rankings, by brute force."""
    vector = ENCODER.encode_queries([query])[0]
    dense = top({id: reference.dense(vector, id) for id in reference.snippets}, depth)
    scores = {id: reference.bm25(query, id) for id in reference.snippets}
    return dense, top({id: score for id, score in scores.items() if score > 0}, depth)


@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("query", [QUERY, "aspirin kidney kidney virus", "gene unseenword"])
def test_hybrid_is_dense_plus_lambda_bm25_with_true_scores_on_both_sides(index, reference, settings, query, weight):
    """Each side gives 10 of 60 candidates; what only one side found gets its true score from the other."""
    ranking = Retriever(index, ENCODER, None, settings.replace(lambda_=weight).retrieval).search(query)
    dense, bm25 = sides(reference, query, 10)
    vector = ENCODER.encode_queries([query])[0]
    truth = {id: reference.dense(vector, id) + weight * reference.bm25(query, id) for id in reference.snippets}
    candidates = {id for id, _ in dense + bm25}
    same(pairs(ranking), top({id: truth[id] for id in candidates}, 10))


@pytest.mark.parametrize("rrf_k", [1, 60])
def test_rrf_sums_reciprocal_ranks(index, reference, settings, rrf_k):
    ranking = Retriever(index, ENCODER, None, settings.replace(fusion="rrf", rrf_k=rrf_k).retrieval).search(QUERY)
    fused = {}
    for side in sides(reference, QUERY, 10):
        for rank, (id, _) in enumerate(side, 1):
            fused[id] = fused.get(id, 0.0) + 1 / (rrf_k + rank)
    same(pairs(ranking), top(fused, 10), tolerance=1e-9)


# --- filters ---


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_filters_and_excluded_pmids_hold_for_every_hit(index, reference, settings, mode):
    settings = settings.replace(mode=mode)
    best = Retriever(index, ENCODER, None, settings.retrieval).search(QUERY).hits[0].snippet
    where = parse_filter("year>=2010 and not type=Trial") + exclude_pmids((best.pmid, 119))
    found = Retriever(index, ENCODER, None, settings.retrieval).search(QUERY, where=where)
    allowed = {
        id
        for id, snippet in reference.snippets.items()
        if snippet.metadata["year"] >= 2010
        and snippet.metadata["type"] != "Trial"
        and snippet.pmid not in (best.pmid, 119)
    }
    assert found.hits
    assert {hit.snippet.id for hit in found.hits} <= allowed
    if mode == "dense":
        vector = ENCODER.encode_queries([QUERY])[0]
        same(pairs(found), top({id: reference.dense(vector, id) for id in allowed}, 10))


# --- reranking ---


@pytest.mark.parametrize("weight", [0.0, 0.5])
@pytest.mark.parametrize(("k_init", "k"), [(20, 5), (4, 12)])
def test_reranking_orders_the_first_k_init_and_leaves_the_tail(index, reference, settings, weight, k_init, k):
    settings = settings.replace(depth=30, k_init=k_init, k=k, interpolation=weight)
    first = pairs(Retriever(index, ENCODER, None, settings.retrieval).search(QUERY, limit=max(k, k_init)))
    reranked = {}
    for id, score in first[:k_init]:
        shared = set(words(QUERY)) & set(words(reference.snippets[id].contents))
        reranked[id] = len(shared) / 3 + weight * score
    same(
        pairs(Retriever(index, ENCODER, [OverlapReranker()], settings.retrieval).search(QUERY)),
        (top(reranked, k_init) + first[k_init:])[:k],
    )


class LengthReranker:
    """Scores a text by the cosine of its length, as a second opinion."""

    def score_all(self, queries, candidates):
        return [np.array([math.cos(len(snippet.contents)) for snippet in found]) for found in candidates]


CHAIN = {
    OverlapReranker: lambda text: len(set(words(QUERY)) & set(words(text))) / 3,
    LengthReranker: lambda text: math.cos(len(text)),
}


def slow_chain(first, stages, score, text_of, weights):
    """The chain in loops: `first` [(id, score)], `stages` [(kind, cross, depth)]; see Retriever."""
    ranking, after_cross = list(first), False
    for kind, cross, depth in stages:
        head, tail = ranking[:depth], ranking[depth:]
        low, high = min(score for _, score in head), max(score for _, score in head)
        new = {}
        for id, before in head:
            if after_cross:
                before = (before - low) / (high - low) if high > low else 0.0
            new[id] = score[kind](text_of(id)) + weights[cross] * before
        ranking, after_cross = sorted(new.items(), key=lambda pair: (-pair[1], pair[0])) + tail, cross
    return ranking


@pytest.mark.parametrize(
    ("chain", "stages"),
    [
        ("encoder,cross:x", [(OverlapReranker, False, 20), (LengthReranker, True, 10)]),
        (
            "cross:x@9,cross:y@5,encoder@4",
            [(LengthReranker, True, 9), (OverlapReranker, True, 5), (OverlapReranker, False, 4)],
        ),
    ],
)
def test_a_chain_adds_the_weighted_score_of_the_stage_before(index, reference, settings, chain, stages):
    settings = settings.replace(depth=30, k=25, k_init=20, reranker=chain, interpolation=0.5, cross_interpolation=3.0)
    first = pairs(Retriever(index, ENCODER, None, settings.retrieval).search(QUERY))
    found = pairs(Retriever(index, ENCODER, [kind() for kind, _, _ in stages], settings.retrieval).search(QUERY))
    text_of = lambda id: reference.snippets[id].contents  # noqa: E731
    same(found, slow_chain(first, stages, CHAIN, text_of, {False: 0.5, True: 3.0}))


# --- answering ---

DOCUMENTS = [
    Snippet("d1", "Isoniazid", "Isoniazid depletes pyridoxine and neuropathy follows.", 1),
    Snippet("d2", "", "Pyridoxine prevents isoniazid neuropathy in adults.", 2),
    Snippet("d3", "Thiamine", "Thiamine prevents beriberi and not neuropathy from isoniazid.", 3),
    Snippet("d4", "Folate", "Folate is given with methotrexate.", 4),
]
IN_ORDER = [DOCUMENTS[2], DOCUMENTS[1], DOCUMENTS[0]]  # as the retriever below ranks them
ASKED = "Which vitamin prevents neuropathy from isoniazid?"
OPTIONS = {"A": "Zinc", "B": "Pyridoxine", "C": "Copper"}
CHOICE = Question("q7", ASKED, OPTIONS)
OPEN = Question("q8", ASKED)


@pytest.fixture
def library() -> MemoryIndex:
    return MemoryIndex(DOCUMENTS, ENCODER.encode_snippets([snippet.contents for snippet in DOCUMENTS]))


@pytest.fixture
def plain(settings) -> Settings:
    """Settings under which the hits are d3, d2, d1 in this order, see the first test below, and all is answered."""
    return settings.replace(rerank=False, mode="bm25", k=3, max_tokens=50, answer_anyway=True)


@pytest.fixture
def answerer(library, plain):
    def build(generator, **changes) -> Answerer:
        return Answerer(
            Retriever(library, ENCODER, None, plain.replace(**changes).retrieval), generator, plain.replace(**changes)
        )

    return build


def reply(**fields) -> str:
    return json.dumps(fields)


def test_a_multiple_choice_reply_is_read_and_verified(answerer):
    text = reply(
        step_by_step_thinking="Pyridoxine prevents isoniazid neuropathy in adults [2].",
        relevant_context="YES",
        answer_choice="B",
    )
    generator = ScriptedGenerator([text])
    answer = answerer(generator).answer(CHOICE)
    assert (answer.choice, answer.text, answer.parsed) == ("B", "Pyridoxine", True)
    assert answer.reasoning == "Pyridoxine prevents isoniazid neuropathy in adults [2]."
    assert answer.relevant_context == "YES"
    assert answer.reply == text
    assert answer.question is CHOICE
    assert [hit.snippet.id for hit in answer.hits] == ["d3", "d2", "d1"]
    assert answer.supplied == 3
    assert [(c.n, c.id, c.pmid, c.quote) for c in answer.citations] == [
        (2, "d2", 2, "Pyridoxine prevents isoniazid neuropathy in adults.")
    ]
    assert answer.citations[0].score == answer.hits[1].score
    assert answer.notes == ()


def test_the_options_are_never_seen_by_the_retriever(library, settings):
    class RecordingEncoder(HashEncoder):
        def encode_queries(self, texts):
            self.encoded.extend(texts)
            return super().encode_queries(texts)

    encoder, reranker = RecordingEncoder(dimension=16), RecordingReranker()
    for method in ("generate", "score"):
        answerer = Answerer(Retriever(library, encoder, [reranker], settings.retrieval), ScriptedGenerator(), settings)
        answerer.answer(CHOICE, method=method)
    assert set(encoder.encoded) == {ASKED}
    assert {query for query, _ in reranker.asked} == {ASKED}
    assert {probe.query for probe in library.probes if isinstance(probe.query, str)} == {ASKED}
    vector = ENCODER.encode_queries([ASKED])[0]
    assert all(np.array_equal(probe.query, vector) for probe in library.probes if not isinstance(probe.query, str))


@pytest.mark.parametrize(
    ("text", "choice", "parsed"),
    [
        ("I think B.", None, False),
        (reply(answer_choice="E"), None, False),
        (json.dumps([{"answer_choice": "B"}]), None, False),
        ("```json\n" + reply(answer_choice="b") + "\n```", "B", False),
        (reply(answer_choice="b."), "B", True),
    ],
)
def test_what_cannot_be_read_has_no_choice_and_is_not_parsed(answerer, text, choice, parsed):
    answer = answerer(ScriptedGenerator([text])).answer(CHOICE)
    assert (answer.choice, answer.parsed, answer.reply) == (choice, parsed, text)
    assert answer.text == (OPTIONS[choice] if choice else "")
    assert answer.relevant_context is None
    assert answer.citations == ()
    assert any("no citation holds" in note for note in answer.notes)


def test_an_open_reply_is_read_and_its_citations_are_verified(answerer):
    said = "Pyridoxine prevents isoniazid neuropathy in the adults."
    generator = ScriptedGenerator([reply(answer=said, citations=[2, 9, 3])])
    answer = answerer(generator).answer(OPEN)
    assert (answer.choice, answer.parsed) == (None, True)
    assert answer.text == said
    assert [(citation.n, citation.id) for citation in answer.citations] == [(2, "d2")]
    assert not answerer(ScriptedGenerator([f"Reply: {answer.reply}"])).answer(OPEN).parsed, "not JSON alone"
    assert answer.citations[0].quote == "Pyridoxine prevents isoniazid neuropathy in adults."
    assert any("[9]" in note and "no document of that number" in note for note in answer.notes)
    assert generator.prompts == [load_template("open").render(OPEN, IN_ORDER)]
    assert generator.schemas[0]["properties"]["citations"]["items"] == {"enum": [1, 2, 3]}


@pytest.mark.parametrize(
    "text",
    [
        *(reply(answer=""), reply(answer=5), reply(citations=[1]), "{}", "prose"),
        *(reply(answer="citations"), reply(answer="A JSON object:"), reply(answer=ASKED)),
    ],
)
def test_a_reply_that_is_no_answer_is_not_shown_and_the_extract_is(answerer, text):
    answer = answerer(ScriptedGenerator([text])).answer(OPEN)
    assert (answer.reply, answer.parsed, answer.answerer) == (text, False, "extract")
    assert answer.sentences[0].text in answer.hits[answer.citations[0].n - 1].snippet.contents
    assert "is not shown: this is an extract" in answer.notes[0]


@pytest.mark.parametrize(
    ("replies", "kept", "retries"),
    [
        ([reply(answer="Aspirin lowers fever.")], 0, 0),
        (["Aspirin.", reply(answer="Aspirin lowers fever.")], 1, 1),
        (["Aspirin.", reply(answer=""), reply(answer="Aspirin lowers fever.")], 2, 2),
        (["Aspirin.", "[]", "{"], 0, 2),
    ],
)
def test_a_free_reply_to_an_open_question_is_sampled_again_until_it_is_json_with_a_text(
    answerer, replies, kept, retries
):
    generator = ScriptedGenerator(list(replies))
    answer = answerer(generator, json_mode="free").answer(OPEN)
    assert (answer.reply, answer.retries) == (replies[kept], retries)
    assert generator.samplings == [GREEDY, *RETRIES][: retries + 1]
    assert all(sampling.temperature > 0 for sampling in RETRIES) and len(set(RETRIES)) == 2


@pytest.mark.parametrize("method", ["generate", "score"])
def test_the_time_of_a_kept_reply_is_not_the_models(answerer, tmp_path, method):
    made = answerer(CachedGenerator(ScriptedGenerator(), tmp_path, {}))
    first, kept = made.answer(CHOICE, method=method), made.answer(CHOICE, method=method)
    assert "generate" in first.timings_ms
    assert list(kept.timings_ms) == ["encode", "first_stage", "fetch", "cached", "total"]
    assert kept.timings_ms["total"] == pytest.approx(sum(islice(kept.timings_ms.values(), 4)), abs=0.01)
    assert kept.notes == (*first.notes, CACHED_NOTE)
    assert replace(kept, notes=(), timings_ms={}) == replace(first, notes=(), timings_ms={})


# --- the generator's window ---


def window_for(question: Question, supplied: int, method: str = "choice", output: int = 50) -> int:
    """The smallest window that takes this many of d3, d2, d1."""
    documents = IN_ORDER[:supplied]
    prompt = load_template(method).render(question, documents)
    return ScriptedGenerator().count_tokens(prompt) + output + ANSWER_MARGIN


@pytest.mark.parametrize("supplied", [0, 2, 3])
@pytest.mark.parametrize(("question", "template"), [(CHOICE, "choice"), (OPEN, "open")])
def test_the_context_is_cut_snippet_by_snippet_the_best_stay(answerer, question, template, supplied):
    generator = ScriptedGenerator(context_window=window_for(question, supplied, template))
    answer = answerer(generator).answer(question)
    documents = IN_ORDER[:supplied]
    assert generator.prompts == [load_template(template).render(question, documents)]
    assert answer.supplied == supplied
    assert len(answer.hits) == 3, "the evidence is shown whole"
    cut = [note for note in answer.notes if "did not fit" in note]
    assert len(cut) == (supplied < 3)
    if cut:
        assert f"{3 - supplied} of 3 documents" in cut[0]
        assert str(generator.context_window) in cut[0]


@pytest.mark.parametrize("method", ["generate", "score"])
def test_a_question_that_does_not_fit_at_all_is_refused(answerer, method):
    template, output = ("choice", 50) if method == "generate" else ("score", 0)
    generator = ScriptedGenerator(context_window=window_for(CHOICE, 0, template, output) - 1)
    with pytest.raises(PromptTooLongError, match="'q7'") as caught:
        answerer(generator).answer(CHOICE, method=method)
    assert caught.value.exit_code == 3
    assert str(generator.context_window) in str(caught.value)


# --- scoring the options ---


@pytest.mark.parametrize(
    ("logprobs", "choice"), [({"A": -3.0, "B": -0.25, "C": -2.0}, "B"), ({"A": -1.0, "B": -1.0, "C": -1.0}, "A")]
)
def test_the_option_with_the_best_log_probability_wins_ties_go_to_the_first_letter(answerer, logprobs, choice):
    generator = ScriptedGenerator(logprobs=logprobs)
    answer = answerer(generator).answer(CHOICE, method="score")
    assert (answer.choice, answer.text, answer.parsed) == (choice, OPTIONS[choice], True)
    assert answer.option_logprobs == logprobs
    assert json.loads(answer.reply) == {"option_logprobs": logprobs, "answer_choice": choice}
    assert generator.prompts == [load_template("score").render(CHOICE, IN_ORDER)]
    assert answer.supplied == 3


# --- templates of the user's ---


@pytest.mark.parametrize("method", ["generate", "score"])
def test_a_prompt_file_replaces_the_built_in_template(answerer, tmp_path, method):
    file = tmp_path / "own.txt"
    file.write_text("[system]\nBe brief.\n[user]\n{question} {options} {letters} {documents}\n", encoding="utf-8")
    generator = ScriptedGenerator()
    answerer(generator, prompt=file, k=1).answer(CHOICE, method=method)
    assert generator.prompts[0].system == "Be brief."
    assert generator.prompts[0].user == (
        f"{ASKED} A. Zinc\nB. Pyridoxine\nC. Copper A, B, C "
        f'<document n="1">\nThiamine\n{DOCUMENTS[2].content}\n</document>'
    )


@pytest.mark.parametrize(("mode", "rerank"), [("bm25", False), ("hybrid", True)])
def test_a_batch_of_queries_gives_what_they_give_one_by_one(index, settings, mode, rerank):
    queries = [QUERY, "fever", "nothing-of-the-kind", "liver heart gene", QUERY]
    wheres = [(), parse_filter("year>=2010"), (), parse_filter("year>=3000"), ()]
    retriever = Retriever(
        index, ENCODER, [OverlapReranker()] if rerank else None, settings.replace(mode=mode, k_init=4).retrieval
    )
    together = retriever.search_all(queries, 6, wheres)
    assert [ranking.query for ranking in together] == queries
    for ranking, query, where in zip(together, queries, wheres, strict=True):
        assert pairs(ranking) == pairs(retriever.search(query, 6, where))
    assert retriever.search_all([]) == []
