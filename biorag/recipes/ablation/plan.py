"""From a sweep to the commands that train, index, mine and measure each of its cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from biorag.recipes.ablation.sweep import BASELINES, Cell, Sweep
from biorag.recipes.files import content_hash
from biorag.recipes.steps import PER_QUESTION, Step
from biorag.registries import NEGATIVES
from biorag.utils.versions import installed_versions


@dataclass(frozen=True, slots=True)
class Measurement:
    """The steps that measure one cell: one for each data set, and MIRAGE where it is asked for."""

    cell: Cell
    retrieval: Mapping[str, Step]
    mirage: Step | None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return all of them."""
        return (*self.retrieval.values(), *([self.mirage] if self.mirage else []))


class AblationPlan:
    """The steps of a sweep; cells that share a retriever or a reranker share its steps."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        # Settings come from a file that every step reads, so they are part of every key; so is the program.
        self._settings = json.dumps([sweep.settings, installed_versions()], sort_keys=True)
        self._hash = cache(content_hash)
        self._retriever = cache(self._make_retriever)
        self._index = cache(self._make_index)
        self._mined = cache(self._make_mined)
        self._reranker = cache(self._make_reranker)

    def measurement(self, cell: Cell) -> Measurement:
        """Return the steps that measure a cell."""
        index, arguments, needs = self._pipeline(cell)
        retrieval = {}
        for dataset in self._sweep.evaluate:
            held_out = ["--held-out"] if self._sweep.held_out else []
            words = ["bench", "retrieval", str(dataset), *arguments, *held_out]
            files = ["--per-question", "{out}/" + PER_QUESTION, "--run-file", "{out}/run.trec"]
            name = f"{cell.name}: {dataset.name}"
            retrieval[dataset.name] = self._step(name, [*words, *files], [index, *needs], [dataset])
        return Measurement(cell, retrieval, self._mirage(cell, arguments, [index, *needs]))

    def _mirage(self, cell: Cell, arguments: Sequence[str], needs: Sequence[Step]) -> Step | None:
        asked = self._sweep.mirage
        if asked is None:
            return None
        words = ["bench", "mirage", "--benchmark", str(asked.benchmark), "--llm", asked.llm, "--out", "{out}"]
        words += ["--limit", str(asked.limit)] if asked.limit else []
        words += [word for task in asked.task for word in ("--task", task)]
        return self._step(f"{cell.name}: MIRAGE", [*words, *arguments], needs, [asked.benchmark])

    def _pipeline(self, cell: Cell) -> tuple[Step, list[str], list[Step]]:
        """Return the index a cell searches, the options it searches with, and the steps those need."""
        if cell in BASELINES:
            index = self._index(None)
            return index, [*_named(index), *(["--mode", "bm25"] if cell == BASELINES[0] else []), "--no-rerank"], []
        index = self._index((cell.negatives, cell.similarity))
        if cell.reranker == "none":
            return index, [*_named(index), "--no-rerank"], []
        depth = ["--k-init", str(cell.k_init)]
        if cell.reranker == "untrained":
            return index, [*_named(index), *depth, "--reranker", "encoder"], []
        if cell.reranker == "own-kind":
            reranker = self._reranker(None, cell.negatives)
        else:
            reranker = self._reranker(None if cell.reranker == "independent" else (cell.negatives, cell.similarity))
        return index, [*_named(index), *depth, "--reranker", reranker.place], [reranker]

    def _make_retriever(self, negatives: str, similarity: str) -> Step:
        words = ["train", "retriever"]
        options = ["--base", self._sweep.base, "--negatives", negatives, "--similarity", similarity, "--out", "{out}"]
        if NEGATIVES[negatives].in_batch:
            base = self._index(None)
            rows, needs = [*map(str, self._sweep.train), *_named(base), *self._guard()], [base]
        else:
            mined = self._mined(None, negatives)
            rows, needs = [f"{mined.place}/rows.jsonl", *self._used()], [mined]
        name = f"retriever {negatives} {similarity}"
        return self._step(name, [*words, *rows, *options, *self._capped()], needs, self._sweep.train)

    def _make_index(self, trained: tuple[str, str] | None) -> Step:
        """Return the index of a trained retriever; of the base for None."""
        corpus = list(map(str, self._sweep.corpus))
        if trained is None:
            words, needs, name = ["--encoder", self._sweep.base], [], "index of the base"
        else:
            retriever = self._retriever(*trained)
            words, needs = ["--encoder", retriever.place, "--similarity", trained[1]], [retriever]
            name = f"index of {' '.join(trained)}"
        # By what it is made of, so that a sweep changed later makes another index in the same home. Recipes let `Step`
        # name it; sweeps of 0.1.0 resume only with the same words.
        made_of = json.dumps(
            [words, [need.key for need in needs], self._settings, [*map(self._hash, self._sweep.corpus)]]
        )
        title = f"{'-'.join(trained or ('base',))}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"
        return self._step(name, ["index", *corpus, *words, "--name", title], needs, self._sweep.corpus)

    def _make_mined(self, trained: tuple[str, str] | None, kind: str) -> Step:
        """Return rows with negatives of a kind, from a trained retriever's index; the base's for None."""
        index = self._index(trained)
        words = ["mine", *map(str, self._sweep.train), "--negatives", kind, *_named(index), *self._guard()]
        words += ["--per-row", str(self._sweep.mined), "--out", "{out}/rows.jsonl"]
        name = f"{kind} negatives of {' '.join(trained) if trained else 'the base'}"
        return self._step(name, words, [index], self._sweep.train)

    def _make_reranker(self, trained: tuple[str, str] | None, kind: str | None = None) -> Step:
        """Return a reranker trained on a retriever's own mistakes; on BM25 negatives for None.

        With a `kind` it is trained on the negatives of this kind alone, mined from the base's index.
        """
        mined = self._mined(trained, "retriever") if trained else self._mined(None, kind or "bm25")
        base = self._sweep.reranker_base or self._sweep.base
        words = ["train", "reranker", f"{mined.place}/rows.jsonl", *self._used(), "--base", base, "--out", "{out}"]
        words += [*(["--negatives", kind] if kind else []), *self._capped()]
        name = f"own-kind {kind}" if kind else " ".join(trained) if trained else "independent"
        return self._step(f"reranker {name}", words, [mined], [])

    def _used(self) -> list[str]:
        return ["--hard-negatives", str(self._sweep.hard_negatives)] if self._sweep.hard_negatives else []

    def _step(self, name: str, words: Sequence[str], needs: Sequence[Step], files: Sequence[Path]) -> Step:
        named = [Path(word) for word in words if not word.startswith("{")]  # a base, a guard, a generator's file
        given = dict.fromkeys([*files, *(path for path in named if path.exists())])
        return Step(name, tuple(words), tuple(needs), (self._settings, *map(self._hash, given)))

    def _guard(self) -> list[str]:
        guards = [word for path in self._sweep.guard for word in ("--guard", str(path))]
        return [*guards, "--drop-contaminated"] if guards else []

    def _capped(self) -> list[str]:
        return ["--max-positives", str(self._sweep.max_positives)] if self._sweep.max_positives else []


def _named(index: Step) -> list[str]:
    """Return the option that names the index of a step."""
    return ["--name", index.arguments[index.arguments.index("--name") + 1]]
