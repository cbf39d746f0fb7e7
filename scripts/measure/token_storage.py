"""What ways to keep token vectors cost: bytes a snippet, and nDCG@10 after reranking with them.

    python -m scripts.measure.token_storage DATA --home HOME --name pubmed --out bench-results/token_storage

HOME has an index of DATA/pubmed by the starter encoder. The 20 candidates of hybrid retrieval of seeded questions are
reranked by each way of keeping token vectors: by BioASQ's before 2021 (on which ways are chosen), its later ones, and
PubMedQA's. Projections are fitted to 256 of the candidates' snippets, codebooks to the same. The last rows are
the engine's own, by an index that keeps its vectors so. Writes a table, its JSON and a plot.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from ir_measures import calc_aggregate, nDCG
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from biorag.corpus.datasets import Dataset, load_dataset
from biorag.engine import encoder_files, open_index
from biorag.indexes.manifest import COMPACT, TokenParameters
from biorag.indexes.store import open_embedded
from biorag.models.colbert import pooled
from biorag.models.late_interaction import mean_maxsim
from biorag.models.token_projection import fitted, projected, to_text
from biorag.models.tokens import token_spans
from biorag.models.vectors import unit
from biorag.settings.settings import Settings
from biorag.types import IndexQuery, Snippet, Vectors
from biorag.utils.files import write_json
from biorag.utils.plots import PlotPanel, write_plot
from scripts.measure.summary import markdown

QUESTIONS, CANDIDATES, FITTED, CENTROIDS = 300, 20, 256, 1024
LATER = 0x5FEE6600  # seconds of 2021-01-01: BioASQ's ids begin with the time of their making
Map = Callable[[Vectors], Vectors]


@dataclass(frozen=True)
class Asked:
    """A question: its token vectors, its candidates with their first-stage scores, and its relevant snippets."""

    id: str
    tokens: Vectors
    candidates: Sequence[tuple[str, float]]
    relevant: dict[str, int]


@dataclass(frozen=True)
class Way:
    """A way to keep token vectors: what comes back of a snippet's, a map of a question's, and the bits of a token."""

    name: str
    documents: Callable[[str], Vectors]
    query: Map
    bits: float


@dataclass(frozen=True)
class Row:
    """What a way takes and gives; `losses` in points of nDCG@10, by set of questions."""

    name: str
    bytes_per_snippet: float
    ndcg: dict[str, float]
    losses: dict[str, float]


def signs(rows: Vectors) -> Vectors:
    """Return one bit a number."""
    return np.sign(rows).astype(np.float32)


def int8(rows: Vectors) -> Vectors:
    """Return numbers as eight bits keep them, with one scale for all tokens."""
    return np.clip(np.round(rows * 127 / 0.6), -127, 127).astype(np.float32)


class ResidualCodes:
    """A centroid and a few bits of each number's distance from it (ColBERTv2, Santhanam et al. 2022, section 3.3)."""

    def __init__(self, rows: Vectors, bits: int) -> None:
        from sklearn.cluster import MiniBatchKMeans

        means = MiniBatchKMeans(CENTROIDS, random_state=0, n_init=1, batch_size=4096).fit(rows)
        self._centroids: Vectors = unit(means.cluster_centers_.astype(np.float32))
        residuals = rows - self._nearest(rows)
        edges = np.arange(1, 2**bits) / 2**bits
        self._edges = np.quantile(residuals, edges)
        self._values = np.quantile(residuals, (np.arange(2**bits) + 0.5) / 2**bits).astype(np.float32)
        self.bits = math.log2(CENTROIDS) + bits * rows.shape[1]

    def _nearest(self, rows: Vectors) -> Vectors:
        return self._centroids[(rows @ self._centroids.T).argmax(axis=1)]

    def __call__(self, rows: Vectors) -> Vectors:
        """Return what the codes say of vectors."""
        nearest = self._nearest(rows)
        return unit(nearest + self._values[np.searchsorted(self._edges, rows - nearest)])


class Experiment:
    """Questions, and the token vectors of their candidates."""

    def __init__(self, data: Path, settings: Settings) -> None:
        bioasq, pubmedqa = load_dataset(data / "bioasq"), load_dataset(data / "pubmedqa")
        early = [question for question in bioasq.questions if int(question.id[:8], 16) < LATER]
        later = [question for question in bioasq.questions if int(question.id[:8], 16) >= LATER]
        sets = {
            "BioASQ": replace(bioasq, questions=early),
            "BioASQ, later": replace(bioasq, questions=later),
            "PubMedQA": pubmedqa,
        }
        self.weight = settings.retrieval.interpolation
        self.snippets: dict[str, Snippet] = {}
        with open_index(settings) as opened:
            self.manifest = opened.manifest
            self.encoder = opened.load_encoder()
            self._spans = token_spans(encoder_files(settings, opened.manifest))
            self._search = opened.retriever.search_all
            self.asked = {name: list(self._asked(found)) for name, found in sets.items()}
        ids = sorted(self.snippets)
        vectors = self.encoder.snippet_tokens([self.snippets[id].contents for id in ids])
        self.tokens = dict(zip(ids, vectors, strict=True))
        chosen = random.Random(0).sample(ids, min(FITTED, len(ids)))
        self.sample = [self.tokens[id] for id in chosen]
        self.titles = np.concatenate(self.encoder.query_tokens([self.snippets[id].title or "none" for id in chosen]))

    def _asked(self, dataset: Dataset) -> Iterator[Asked]:
        questions = random.Random(0).sample(list(dataset.questions), min(QUESTIONS, len(dataset.questions)))
        texts = [question.text for question in questions]
        for question, ranking, tokens in zip(
            questions, self._search(texts, CANDIDATES), self.encoder.query_tokens(texts), strict=True
        ):
            self.snippets |= {hit.snippet.id: hit.snippet for hit in ranking.hits}
            scored = [(hit.snippet.id, hit.score) for hit in ranking.hits]
            yield Asked(question.id, tokens, scored, dict(dataset.qrels[question.id]))

    def scored(self, score: Callable[[Asked], Vectors]) -> dict[str, float]:
        """Return the mean nDCG@10 of each set, its candidates reranked by these scores."""
        return {
            name: calc_aggregate(
                [nDCG @ 10],
                {asked.id: asked.relevant for asked in of_set},
                {asked.id: self._totals(asked, score(asked)) for asked in of_set},
            )[nDCG @ 10]
            for name, of_set in self.asked.items()
        }

    def _totals(self, asked: Asked, late: Vectors) -> dict[str, float]:
        return {
            id: float(score + self.weight * first) for score, (id, first) in zip(late, asked.candidates, strict=True)
        }

    def of_way(self, way: Way) -> tuple[float, dict[str, float]]:
        """Return a way's bytes a snippet, and its nDCG@10."""
        kept = {id: way.documents(id) for id in self.tokens}
        found = self.scored(
            lambda asked: mean_maxsim(way.query(asked.tokens), [kept[id] for id, _ in asked.candidates])
        )
        return way.bits / 8 * float(np.mean([len(rows) for rows in kept.values()])), found

    def of_engine(self, dimension: int, pooling: int) -> tuple[float, dict[str, float]]:
        """Return the same of an index that keeps compact vectors, by the engine's own scores."""
        matrix = fitted(self.sample, dimension)
        parameters = TokenParameters("encoder", "", "0" * 64, dimension, pooling, COMPACT, to_text(matrix))
        manifest = replace(self.manifest, tokens=parameters, complete=False, checksums=None)
        ids = sorted(self.tokens)
        kept = pooled(projected([self.tokens[id] for id in ids], matrix), pooling)
        vectors = np.zeros((len(ids), manifest.encoder.dimension), np.float32)
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(open_embedded(Path(folder), manifest, writable=True)) as index,
        ):
            index.upsert([self.snippets[id] for id in ids], vectors, kept)

            def score(asked: Asked) -> Vectors:
                (query,) = projected([asked.tokens], matrix)
                among = frozenset(id for id, _ in asked.candidates)
                (hits,) = index.search([IndexQuery(query, len(among), among=among)])
                by_id = dict(hits)
                return np.array([by_id[id] / len(query) for id, _ in asked.candidates], np.float32)

            return dimension / 2 * float(np.mean([len(rows) for rows in kept])), self.scored(score)

    def without(self, id: str, left_out: Callable[[str], bool]) -> Vectors:
        """Return a snippet's token vectors without those of some words."""
        text, rows = self.snippets[id].contents, self.tokens[id]
        spans = self._spans(text)[: len(rows)]
        kept = [start == end or not left_out(text[start:end].lower()) for start, end in spans]
        return rows[kept] if any(kept) else rows

    def ways(self) -> Iterator[Way]:
        """Yield the ways that are computed here, numbers exact unless the name says how they are kept."""
        tokens = self.tokens
        yield Way("384 dimensions, half precision", tokens.__getitem__, lambda rows: rows, 384 * 16)
        yield Way("signs of 384 dimensions", lambda id: signs(tokens[id]), lambda rows: rows, 384)
        for size in (128, 96, 64):
            matrix = fitted(self.sample, size)
            near = _by_one(projected, matrix)
            cut = _times(matrix)
            yield Way(f"PCA {size}, int8", lambda id, cut=cut: int8(cut(tokens[id])), _scaled(cut), size * 8)
            yield Way(f"PCA {size}, unit length, int8", lambda id, n=near: int8(n(tokens[id])), _scaled(near), size * 8)
        near = _by_one(projected, fitted(self.sample, 128))
        for bits in (1, 2):
            codes = ResidualCodes(near(np.concatenate(self.sample)), bits)
            yield Way(
                f"PCA 128, residual codes of {bits} bits", lambda id, c=codes: c(near(tokens[id])), near, codes.bits
            )
        query, document = _cross(self.titles, np.concatenate(self.sample), 128)
        yield Way(
            "projections learned on titles, 128, int8", lambda id: int8(document(tokens[id])), _scaled(query), 1024
        )
        for name, left_out in (
            ("punctuation", re.compile(r"\W+").fullmatch),
            ("function words", ENGLISH_STOP_WORDS.__contains__),
        ):
            yield Way(
                f"PCA 128, unit length, without {name}, int8",
                lambda id, out=left_out: int8(near(self.without(id, lambda word: bool(out(word))))),
                _scaled(near),
                1024,
            )


def _by_one(project: Callable[[Sequence[Vectors], Vectors], list[Vectors]], matrix: Vectors) -> Map:
    return lambda rows: project([rows], matrix)[0]


def _times(matrix: Vectors) -> Map:
    return lambda rows: rows @ matrix


def _scaled(change: Map) -> Map:
    """Return a question's map whose scores are on the scale of `int8` vectors' originals."""
    return lambda rows: change(rows) * (0.6 / 127)


def _cross(queries: Vectors, documents: Vectors, size: int) -> tuple[Map, Map]:
    """Return the two projections that keep most of the products of these queries' and documents' vectors.

    By the singular vectors of the product of the square roots of both second moments.
    """
    (root_q, back_q), (root_d, back_d) = _roots(queries), _roots(documents)
    left, values, right = np.linalg.svd(root_q @ root_d)
    scale = np.sqrt(values[:size])
    of_queries = (back_q @ left[:, :size] * scale).astype(np.float32)
    of_documents = (back_d @ right[:size].T * scale).astype(np.float32)
    return _times(of_queries), _times(of_documents)


def _roots(rows: Vectors) -> tuple[Vectors, Vectors]:
    """Return the square root of the second moments, and its inverse."""
    moments = rows.T.astype(np.float64) @ rows / len(rows) + 1e-6 * np.eye(rows.shape[1])
    values, axes = np.linalg.eigh(moments)
    return (axes * values**0.5) @ axes.T, (axes * values**-0.5) @ axes.T


def plotted(rows: Sequence[Row]) -> PlotPanel:
    """Return the worst loss of the three sets by size; a line joins the same way with other numbers of dimensions."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row.bytes_per_snippet):
        way = re.sub(r" of \d bits", "", re.sub(r"PCA \d+", "PCA", row.name))
        lines.setdefault(way, []).append((row.bytes_per_snippet / 1000, max(row.losses.values())))
    return PlotPanel("Worst loss of the three sets", "KB a snippet", "points of nDCG@10", lines, logarithmic_x=True)


def main() -> None:
    """Measure all ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", default="pubmed")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    experiment = Experiment(options.data, Settings.of(home=options.home, name=options.name, rerank=False))
    rows: list[Row] = []

    def add(name: str, size: float, found: dict[str, float]) -> None:
        whole = rows[0].ndcg if rows else found
        rows.append(Row(name, size, found, {of: 100 * (whole[of] - value) for of, value in found.items()}))
        sys.stderr.write(f"{rows[-1]}\n")

    for way in experiment.ways():
        add(way.name, *experiment.of_way(way))
    for dimension, pooling in ((128, 1), (96, 1), (64, 1), (128, 2), (64, 2)):
        pairs = f", pooled by {pooling}" if pooling > 1 else ""
        add(f"engine: PCA {dimension}, unit length, 4 bits{pairs}", *experiment.of_engine(dimension, pooling))
    sets = list(experiment.asked)
    header = ["kept", "bytes a snippet", *(f"{name}: nDCG@10 (loss)" for name in sets)]
    table = [
        [row.name, round(row.bytes_per_snippet), *(f"{row.ndcg[of]:.4f} ({row.losses[of]:+.2f})" for of in sets)]
        for row in rows
    ]
    sys.stdout.write(markdown(header, table))
    write_json(options.out / "token_storage.json", [asdict(row) for row in rows])
    write_plot(options.out / "token_storage.png", [plotted(rows)])


if __name__ == "__main__":
    main()
