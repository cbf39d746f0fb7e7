"""Documents in blocks, and retracted ones: each document once, by its best block, and as many as are wanted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from biorag.retrieval.fusion import min_max
from biorag.retrieval.retriever import Retriever, _by_document
from biorag.types import ScoredDoc, Snippet, block_id
from tests.answering.test_pipeline import WORDS, MemoryIndex
from tests.fakes import HashEncoder, OverlapReranker

ENCODER = HashEncoder(dimension=16)
QUERY = "heparin fever blood"


def library() -> list[Snippet]:
    """Twenty documents of one to eight blocks; every third is retracted."""
    draw = random.Random(3)
    snippets = []
    for number in range(20):
        count = draw.randint(1, 8)
        for block in range(count):
            text = " ".join(draw.choices(WORDS, k=draw.randint(4, 12)))
            fields = {"retracted": number % 3 == 0}
            whole = Snippet(f"d{number}", f"Title {number}", text, 500 + number, fields)
            part = {"document": whole.id, "block": block, "blocks": count}
            of_one = replace(whole, id=block_id(whole.id, block), metadata={**fields, **part})
            snippets.append(whole if count == 1 else of_one)
    return snippets


LIBRARY = library()


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex(LIBRARY, ENCODER.encode_snippets([snippet.contents for snippet in LIBRARY]))


@pytest.fixture
def settings(settings):
    return settings.replace(rerank=False, mode="dense", k=5, k_init=5, depth=5)


def best_documents(index: MemoryIndex, retracted: bool) -> list[tuple[str, str]]:
    """Every document with its best block's text, best first, the slow way."""
    vector = ENCODER.encode_queries([QUERY])[0]
    scores = sorted(((index.dense(vector, id), id) for id in index.snippets), key=lambda pair: (-pair[0], pair[1]))
    found: dict[str, str] = {}
    for _, id in scores:
        snippet = index.snippets[id]
        if retracted or not snippet.metadata["retracted"]:
            found.setdefault(f"d{snippet.pmid - 500}", snippet.content)
    return list(found.items())


@pytest.mark.parametrize("retracted", [True, False])
@pytest.mark.parametrize("limit", [1, 5, 12, 20, 100])
def test_a_document_comes_once_by_its_best_block(index, settings, limit, retracted):
    (ranking,) = Retriever(index, ENCODER, None, settings.retrieval).search_all([QUERY], limit, retracted=retracted)
    expected = best_documents(index, retracted)[:limit]
    assert [(hit.snippet.id, hit.snippet.content) for hit in ranking.hits] == expected
    assert [hit.rank for hit in ranking.hits] == list(range(1, len(expected) + 1))
    named = [snippet.document for snippet in ranking.left_out]
    assert len(named) == len(set(named)), "an article is named once"
    assert all(snippet.retracted for snippet in ranking.left_out)
    nearest = best_documents(index, retracted=True)[0][0]
    assert (nearest in named) == (not retracted and nearest not in dict(expected)), "the nearest is not lost unsaid"


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_reranking_sees_blocks_and_gives_documents(index, settings, mode):
    settings = settings.replace(mode=mode, k_init=30, interpolation=0)
    ranking = Retriever(index, ENCODER, [OverlapReranker()], settings.retrieval).search(QUERY)
    documents = [hit.snippet.id for hit in ranking.hits]
    assert len(documents) == len(set(documents)) == 5
    shares = [OverlapReranker().score(QUERY, [hit.snippet.contents])[0] for hit in ranking.hits]
    assert [hit.score for hit in ranking.hits] == pytest.approx(shares)


def test_whole_documents_are_reranked_each_once(index, settings):
    settings = settings.replace(mode="dense", k_init=12, k=12, interpolation=0, rerank_whole=True)
    seen: list[list[Snippet]] = []

    class Reading(OverlapReranker):
        def score_all(self, queries, candidates):
            seen.extend(candidates)
            return super().score_all(queries, candidates)

    ranking = Retriever(index, ENCODER, [Reading()], settings.retrieval).search(QUERY)
    read = {f"d{snippet.pmid - 500}": snippet.content for snippet in seen[0]}
    assert len(seen[0]) == len(read) == 12
    assert all(block.content in read.get(block.document, block.content) for block in LIBRARY)
    shown = dict(best_documents(index, retracted=True))
    assert {hit.snippet.id: hit.snippet.content for hit in ranking.hits} == {id: shown[id] for id in read}


@pytest.mark.parametrize("fusion", ["linear", "rrf"])
def test_queries_beside_it_do_not_change_what_a_query_finds(index, settings, fusion):
    found = Retriever(index, ENCODER, None, settings.replace(mode="hybrid", fusion=fusion, k=4).retrieval)
    queries = [" ".join(random.Random(n).choices(WORDS, k=3)) for n in range(12)]

    def hits(rankings):
        return [[(hit.snippet.id, hit.snippet.content) for hit in ranking.hits] for ranking in rankings]

    alone = hits(found.search(query) for query in queries)
    index.probes.clear()
    assert hits(found.search_all(queries)) == alone
    assert len({probe.limit for probe in index.probes if not probe.among}) > 1, "some need a second search"


def test_a_record_of_a_title_alone_stands_not_beside_its_paper():
    record = Snippet("10.5555/x", "Colchicine in acute gout", "", None, {"doi": "10.5555/X"})
    page = Snippet("x.pdf#page=1", "Colchicine in gout", "Text.", None, {"doi": "10.5555/x"})
    other = Snippet("y", "Another paper on gout", "", None, {})
    snippets = {snippet.id: snippet for snippet in (record, page, other)}
    ranking = [ScoredDoc(id, 1.0) for id in snippets]
    assert [scored.id for scored in _by_document(ranking, snippets)] == [page.id, other.id]
    assert _by_document(ranking[:1], snippets) == ranking[:1], "alone it stays"


def test_a_retracted_article_beyond_the_hits_is_not_named(settings):
    rows = [Snippet("a", "", QUERY), Snippet("b", "", "heparin", 9, {"retracted": True})]
    few = MemoryIndex(rows, ENCODER.encode_snippets([row.contents for row in rows]))
    of_one = settings.replace(rerank=True, mode="dense", k=1, k_init=5).retrieval
    (ranking,) = Retriever(few, ENCODER, [OverlapReranker()], of_one).search_all([QUERY], retracted=False)
    assert ([hit.snippet.id for hit in ranking.hits], ranking.left_out) == (["a"], ())


def test_inner_products_are_stretched_before_a_reranker_adds_its_own(settings):
    rows = [Snippet(f"s{n}", "", " ".join(random.Random(n).choices(WORDS, k=6))) for n in range(9)]
    index = MemoryIndex(rows, ENCODER.encode_snippets([row.contents for row in rows]))
    asked = settings.replace(rerank=True, mode="dense", k=9, k_init=9, interpolation=1.0).retrieval
    plain = Retriever(index, ENCODER, None, asked, "dot").search(QUERY).hits
    stretched = dict(zip([hit.snippet.id for hit in plain], min_max([hit.score for hit in plain]), strict=True))
    for hit in Retriever(index, ENCODER, [OverlapReranker()], asked, "dot").search(QUERY).hits:
        overlap = OverlapReranker().score(QUERY, [hit.snippet.contents])[0]
        assert hit.score == pytest.approx(overlap + stretched[hit.snippet.id])
