"""Questions generated from snippets: which snippets are drawn, and which of the model's texts are kept.

Generating queries from documents to train on is Nogueira et al.'s docTTTTTquery and Ma et al.'s zero-shot synthetic
questions (arXiv 2004.14503).
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from biorag.corpus.sentences import sentences
from biorag.engine import open_snippets
from biorag.errors import UsageError
from biorag.generators.source import open_generator
from biorag.lab.synthesis.drafts import (
    DraftFilter,
    DraftForm,
    GenerationJob,
    PromptedWriter,
    Seq2SeqWriter,
    Tally,
    Writer,
    about,
    free_texts,
    on_one_line,
)
from biorag.models.finding import find_encoder
from biorag.prompts.template import FIELDS, Template, load_template
from biorag.training.rows import normalised
from biorag.types import Generation, Snippet
from biorag.utils.versions import installed_versions

KIND = "generated"
LEAST_CHARACTERS = 40  # of a snippet
LEAST_WORDS = 3  # of a question
SEQ2SEQ = "seq2seq:"
SEQ2SEQ_BATCH = 16


def generate_questions(
    job: GenerationJob,
    corpus: Sequence[str],
    name: str | None,
    limit: int | None,
    model: str | None,
    dataset: str | None = None,
) -> Tally:
    """Generate questions of a corpus's snippets, or else of an index's; with a `limit` of so many that are drawn.

    `model` is `seq2seq:ID` in place of the configured generator; `dataset` names the snippets' source in the prompt, as
    in BMRetriever's Listing 1, which the prompt restates.
    """
    job.check("--per-snippet")
    with open_snippets(job.settings, corpus, name) as (source, snippets):
        writer, writer_identity = _seq2seq_writer(job, model) if model else _prompted_writer(job, dataset)

        def begin() -> tuple[list[Snippet], Tally, Writer]:
            chosen, too_short = draw(snippets, limit, job.draws.seed)
            return chosen, {"snippets": len(chosen), "too_short": too_short}, writer

        identity = {"limit": limit, "source": source, **writer_identity}
        return job.generate("Writing questions", identity, question_rows, begin)


def _prompted_writer(job: GenerationJob, dataset: str | None) -> tuple[Writer, dict[str, Any]]:
    """Return the writer that asks the configured generator, and its part of the identity."""
    if dataset:
        template = load_template("question_of", job.template, "documents", (*FIELDS, "dataset"))
        template = template.bound("dataset", dataset)
    else:
        template = load_template("question", job.template, needed="documents")
    opened = open_generator(job.settings)
    writer = PromptedWriter(opened.generator, draft_form(template), job.draws, opened.at_a_time)
    return writer, {"generator": opened.identity, "prompt": template.sha256}


def _seq2seq_writer(job: GenerationJob, model: str) -> tuple[Writer, dict[str, Any]]:
    """Return the writer that samples from a sequence-to-sequence model, and its part of the identity."""
    if not model.startswith(SEQ2SEQ):
        raise UsageError(f"--model {model!r} is not of a known kind: write {SEQ2SEQ}ID, or name a generator with --llm")
    from biorag.generators.seq2seq import Seq2SeqGenerator

    files, precision = find_encoder(model.removeprefix(SEQ2SEQ)), job.settings.retrieval.precision
    identity = {
        "generator": {"name": files.id, "sha256": files.sha256, "precision": precision},
        "batch": SEQ2SEQ_BATCH,
        "versions": installed_versions(),
    }
    return Seq2SeqWriter(Seq2SeqGenerator(files, precision), job.draws, SEQ2SEQ_BATCH), identity


def draw(snippets: Iterable[Snippet], limit: int | None, seed: int) -> tuple[list[Snippet], int]:
    """Return the snippets to write questions for, and how many were skipped as too short.

    With a limit they are those whose ids hash lowest with the seed, in that order: a larger limit adds to a
    smaller one's. Without one they are all, in their order.
    """
    skipped = 0

    def long_enough() -> Iterator[Snippet]:
        nonlocal skipped
        for snippet in snippets:
            if len(snippet.contents) >= LEAST_CHARACTERS:
                yield snippet
            else:
                skipped += 1

    def by_hash(snippet: Snippet) -> bytes:
        return hashlib.blake2b(json.dumps([seed, snippet.id]).encode(), digest_size=16).digest()

    chosen = list(long_enough()) if limit is None else heapq.nsmallest(limit, long_enough(), by_hash)
    return chosen, skipped


def draft_form(template: Template) -> DraftForm:
    """Return the form of a draft: one question that the snippet answers."""
    return DraftForm(free_texts("question"), lambda snippet, _: about(template, "", [snippet]), "question")


def question_rows(
    subject: Snippet, drafts: Sequence[Generation], draft_filter: DraftFilter
) -> Iterator[dict[str, Any]]:
    """Yield a row for each question without a fault, with the snippet that answers it."""
    for draft in drafts:
        question = as_question(draft.text)
        if draft_filter.accepts(_fault(question, draft.capped, subject), question):
            yield {"query": question, "positive": subject.contents, "kind": KIND, "positive_id": subject.document}


def as_question(text: str) -> str:
    """Return a reply on one line, up to its first question mark: small models keep writing after it."""
    question, mark, _ = on_one_line(text).partition("?")
    return question + mark


def _fault(question: str, capped: bool, snippet: Snippet) -> str | None:
    """Return the name of the count of a question's fault; None if it has none."""
    words = normalised(question)
    if not words:
        return "empty"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    if capped and not question.endswith("?"):
        return "cut"
    copied = words in map(normalised, (snippet.title, snippet.content, *sentences(snippet.content)))
    return "copied" if copied else None
