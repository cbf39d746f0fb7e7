"""biorag's own stages: indexing, encoding questions, the first stage, reranking, generation, the whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from biorag.answering.answerer import Answerer
from biorag.benchmarks.latency.timing import Effort, Timing, collect, elapsed_ms, places
from biorag.corpus.sentences import sentences
from biorag.errors import BadInputError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import open_embedded
from biorag.indexes.updating import EncodeSnippets
from biorag.retrieval.retriever import Retriever, Stopwatch
from biorag.settings.settings import Settings
from biorag.types import (
    Encoder,
    EncoderIdentity,
    FieldFilter,
    Generation,
    GenerationRequest,
    Generator,
    Index,
    OnProgress,
    Prompt,
    Question,
    Scores,
    Snippet,
    Vectors,
)
from biorag.utils.batched import batched

MODES = ("bm25", "dense", "hybrid")
FETCH = 1000  # snippets fetched at once
WARM_UP = 8  # snippets encoded before the encoder's time counts
TITLES = 1000  # questions that titles stand in for, where none are given
GENERATED = 10  # questions that the generator answers
CHOICES = ("yes", "no")  # scored to have a prompt evaluated


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: an opened index, what encodes for it, and the questions that are asked of it."""

    settings: Settings
    manifest: Manifest
    index: Index
    encoder: Encoder
    encode: EncodeSnippets
    questions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one snippet takes, and how many a second that makes."""

    ms_per_snippet: float
    snippets_per_s: float


@dataclass(frozen=True, slots=True)
class Generated:
    """What the generator takes; None where a server does not let us see it.

    `prompt_tokens_per_s` is of prompts that share nothing with an earlier one, `output_tokens_per_s` of the reply
    after its first piece; `prompt_tokens` and `output_tokens` are means.
    """

    questions: int
    generate: Timing
    prompt_tokens: float | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens: float | None = None
    output_tokens_per_s: float | None = None


def cost(seconds: float, snippets: int) -> Cost:
    """Return the cost of a snippet where so many took so long."""
    return Cost(round(seconds * 1000 / snippets, 4), round(snippets / max(seconds, 1e-9), 1))


def sampled(index: Index, count: int, seed: int) -> list[Snippet]:
    """Return that many of the index's snippets, all if it has no more, in its own order."""
    ids = list(index.ids())
    if len(ids) > count:
        chosen = np.random.default_rng(seed).choice(len(ids), count, replace=False)
        ids = [ids[place] for place in np.sort(chosen)]
    return list(stored(index, ids))


def stored(index: Index, ids: Sequence[str]) -> Iterator[Snippet]:
    """Yield the snippets of these ids."""
    for start in range(0, len(ids), FETCH):
        part = ids[start : start + FETCH]
        found = index.fetch(part)
        yield from (found[id] for id in part)


def titles(index: Index, limit: int, seed: int) -> list[str]:
    """Return snippets' titles (the first sentence where there is none) to ask in place of questions."""
    snippets = sampled(index, limit, seed)
    found = (snippet.title.strip() or next(iter(sentences(snippet.content)), "") for snippet in snippets)
    return list(dict.fromkeys(text for text in found if text))


def checked(questions: Sequence[str]) -> list[str]:
    """Return the questions without repetitions.

    Raises
    ------
    BadInputError
        If there are fewer than two: an encoder keeps what it encoded last.
    """
    found = list(dict.fromkeys(questions))
    if len(found) < 2:
        raise BadInputError("there are fewer than two different questions to measure with: give more with --questions")
    return found


class Known:
    """An encoder of questions whose vectors are at hand, so that a search takes no time to encode."""

    def __init__(self, identity: EncoderIdentity, questions: Sequence[str], vectors: Vectors) -> None:
        self.identity = identity
        self._vectors = dict(zip(questions, vectors, strict=True))

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the questions' vectors, (texts, dimension)."""
        return np.stack([self._vectors[text] for text in texts])

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts that are questions too."""
        return self.encode_queries(texts)


def indexing(
    subject: Subject, snippets: Sequence[Snippet], folder: Path, on_progress: OnProgress = lambda _: None
) -> dict[str, Cost]:
    """Index snippets anew in an embedded index in `folder`, as `biorag index` does, and return each part's cost.

    "bm25" is a part of "write", measured by itself; "total" is the sum of "encode", "write" and "optimize".
    """
    bm25, watch = Bm25Encoder.of(subject.manifest), Stopwatch()
    subject.encode(snippets[:WARM_UP])
    with closing(scratch_index(folder, subject.manifest)) as index:
        for batch in batched(snippets, subject.settings.index.batch_size):
            with watch.stage("encode"):
                vectors, tokens, _ = subject.encode(batch)
            with watch.stage("bm25"):
                for snippet in batch:
                    bm25.document(snippet.contents)
            with watch.stage("write"):
                index.upsert(batch, vectors, tokens)
            on_progress(len(batch))
        with watch.stage("optimize"):
            index.optimize()
    total = sum(watch.ms[part] for part in ("encode", "write", "optimize"))
    return {stage: cost(taken / 1000, len(snippets)) for stage, taken in {**watch.ms, "total": total}.items()}


def scratch_index(folder: Path, manifest: Manifest, **changes: Any) -> Index:
    """Return a new embedded index as the manifest describes it, apart from the changes."""
    return open_embedded(folder, replace(manifest, **changes), writable=True)


def encoding(encoder: Encoder, questions: Sequence[str], sizes: Sequence[int], effort: Effort) -> dict[int, Timing]:
    """Return what encoding a batch of questions takes, for each size of batch."""

    def sample(size: int) -> Callable[[int], Mapping[str, float]]:
        def encode(turn: int) -> dict[str, float]:
            batch = [questions[place] for place in places(len(questions), size, turn)]
            return {"encode": elapsed_ms(lambda _: encoder.encode_queries(batch), turn)}

        return encode

    return {size: collect(sample(size), effort)["encode"] for size in sizes}


def first_stage(
    index: Index,
    known: Known,
    settings: Settings,
    questions: Sequence[str],
    sizes: Sequence[int],
    effort: Effort,
    where: tuple[FieldFilter, ...] = (),
) -> dict[int, Timing]:
    """Return what the configured first stage takes for a batch of encoded questions, for each size of batch.

    It is the retriever's own, down to `k_init` snippets; encoding and fetching are left out.
    """
    retriever = Retriever(index, known, None, settings.retrieval)

    def sample(size: int) -> Callable[[int], Mapping[str, float]]:
        def search(turn: int) -> dict[str, float]:
            batch = [questions[place] for place in places(len(questions), size, turn)]
            wheres = [where] * size if where else ()
            share = retriever.search_all(batch, settings.retrieval.k_init, wheres)[0].timings_ms["first_stage"]
            return {"first_stage": share * size}

        return search

    return {size: collect(sample(size), effort)["first_stage"] for size in sizes}


def one_by_one(retriever: Retriever, questions: Sequence[str], effort: Effort) -> dict[str, Timing]:
    """Return what each stage of retrieval takes where questions come one at a time, and all of it ("total")."""
    return collect(lambda turn: retriever.search(questions[turn % len(questions)]).timings_ms, effort)


class Watched:
    """A generator that remembers its prompts, and when the pieces of its replies came."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self.name = generator.name
        self.context_window = generator.context_window
        self.prompts: list[Prompt] = []
        self.pieces: list[list[tuple[float, str]]] = []

    @property
    def controls(self) -> Sequence[str]:
        """Return what a document must not write for the model."""
        return self._generator.controls

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens the prompt takes."""
        return self._generator.count_tokens(prompt)

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply, taking the time of every piece."""
        pieces: list[tuple[float, str]] = []
        self.prompts.append(request.prompt)
        self.pieces.append(pieces)

        def note(text: str) -> None:
            pieces.append((time.perf_counter(), text))
            if on_text:
                on_text(text)

        return self._generator.generate(request, note)

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Score the choices."""
        return self._generator.score(prompt, choices)


def generation(
    retriever: Retriever,
    generator: Generator,
    settings: Settings,
    questions: Sequence[str],
    effort: Effort,
    local: bool,
) -> tuple[Generated, Timing]:
    """Answer at most `GENERATED` questions; return what the generator takes, and what the whole answer takes.

    A local generator's speed is taken apart. For the prompt: `score` evaluates one and no more, and a number
    before its system turn makes it one whose beginning was not evaluated before. For the reply: the tokens that
    followed the first piece shown, over the seconds since then.
    """
    watched = Watched(generator)
    answerer = Answerer(retriever, watched, settings)
    asked = replace(effort, repetitions=min(effort.repetitions, GENERATED, len(questions) - 1), warm_up=1)
    found = collect(lambda turn: answerer.answer(Question(str(turn), questions[turn])).timings_ms, asked)
    if "generate" not in found:
        raise BadInputError("no evidence was found for the questions, so nothing was generated: give other --questions")
    speeds = (*_prompt_speed(watched), *_output_speed(watched)) if local else ()
    return Generated(found["generate"].n, found["generate"], *speeds), found["total"]


def _prompt_speed(watched: Watched) -> tuple[float, float]:
    """Return the mean number of tokens of a prompt, and how many a second are evaluated."""
    prompts = [Prompt(f"({n}) {prompt.system}", prompt.user) for n, prompt in enumerate(watched.prompts)]
    tokens = sum(watched.count_tokens(prompt) for prompt in prompts)
    seconds = sum(elapsed_ms(lambda n: watched.score(prompts[n], CHOICES), n) for n in range(len(prompts))) / 1000
    return round(tokens / len(prompts), 1), round(tokens / max(seconds, 1e-9), 1)


def _output_speed(watched: Watched) -> tuple[float | None, float | None]:
    """Return the mean number of tokens of a reply, and how many a second are written; None where it came at once."""

    def length(text: str) -> int:
        return watched.count_tokens(Prompt("", text))

    spans = [(pieces[0], pieces[-1]) for pieces in watched.pieces if len(pieces) > 1]
    tokens = sum(length(last) - length(first) for (_, first), (_, last) in spans)
    seconds = sum(end - start for (start, _), (end, _) in spans)
    if not tokens:
        return None, None
    whole = sum(length(last) - length("") for _, (_, last) in spans)
    return round(whole / len(spans), 1), round(tokens / seconds, 1)
