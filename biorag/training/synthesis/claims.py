"""Claims that a model writes of sentences, true ones and near misses, and those of them whose label it repeats.

A second reply, to the prompt of a judge, must give each claim the label that it was written for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import resources
from random import Random
from typing import Any

from biorag.answering.verification.aliases import aliases_for
from biorag.answering.verification.analysis import analyse
from biorag.answering.verification.generated import QUOTE_TOKENS, SCHEMA, judge_prompt, judge_template, verdict_of
from biorag.answering.verification.rules import assess
from biorag.corpus.claims import ClaimRow
from biorag.corpus.sentences import sentences
from biorag.engine import open_generator, open_snippets
from biorag.prompts.fence import defused
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template, object_schema
from biorag.training.claims.rows import SHORTEST, is_assertion
from biorag.training.rows import normalised
from biorag.training.synthesis.drafts import GenerationJob, Tally, on_one_line
from biorag.training.synthesis.questions import draw
from biorag.training.synthesis.writers import DraftForm, Draws, PromptedWriter, about
from biorag.types import ClaimLabel, Generation, Prompt, Snippet
from biorag.utils.parsing import parse_toml, validated
from biorag.utils.runs import Rows

MOST_CHARACTERS = 6000  # of a snippet: the judge reads all of it
FIELDS = ("documents", "kinds", "sentence", "order")  # of the template
TEXTS = ("rewording", "near_miss", "changed")
ROWS = 4  # of a sentence: two of each claim
FAULTS_OF_ROWS = ("disagreed", "vetoed", "unpaired")


@dataclass(frozen=True, slots=True)
class NearMissKind:
    """A way to make a true claim false: what to change, and what the evidence then does to it.

    If it is `one_way`, evidence of the near miss supports the true claim too: what is certain is also possible.
    """

    change: str
    label: ClaimLabel
    one_way: bool = False


Kinds = Mapping[str, NearMissKind]


@dataclass(frozen=True, slots=True)
class WrittenClaims:
    """What a model wrote of the sentence at a position of a snippet; `changed` is the sentence that fits the near miss.

    The sentences are those of the snippet.
    """

    id: str
    kind: str
    title: str
    sentences: tuple[str, ...]
    position: int
    rewording: str
    near_miss: str
    changed: str

    def rows(self, kind: NearMissKind) -> Iterator[ClaimRow]:
        """Yield two rows of the rewording, then two of the near miss: supported, and not."""
        before, after = self.sentences[: self.position], self.sentences[self.position + 1 :]
        changed = (*before, self.changed, *after)
        rows: list[tuple[str, tuple[str, ...], ClaimLabel]] = [
            (self.rewording, self.sentences, "supports"),
            (self.rewording, (*before, *after), "neither") if kind.one_way else (self.rewording, changed, kind.label),
            (self.near_miss, changed, "supports"),
            (self.near_miss, self.sentences, kind.label),
        ]
        for number, (claim, evidence, label) in enumerate(rows):
            rationale = () if label == "neither" else (self.position,)
            id, document = f"{self.id}-{number}", self.sentences[0]
            yield ClaimRow(id, claim, None, self.title, evidence, label, rationale, document)


def read_kinds() -> Kinds:
    """Return the kinds of near misses by name."""
    content = (resources.files("biorag.prompts") / "claim_kinds.toml").read_bytes()
    return dict(validated(dict[str, NearMissKind], parse_toml(content, "claim_kinds")))


def claimable(snippet: Snippet) -> list[int]:
    """Return the positions of the sentences that claims are written of: assertions of one that is not too long."""
    if len(snippet.contents) > MOST_CHARACTERS:
        return []
    return [index for index, text in enumerate(sentences(snippet.content)) if is_assertion(text)]


def kinds_for(snippet: Snippet, kinds: Kinds) -> list[str]:
    """Return the kinds that a snippet allows: a one-way kind needs sentences to stand without the one it is of."""
    alone = len(sentences(snippet.content)) == 1
    return [name for name, kind in kinds.items() if not (alone and kind.one_way)]


def drawn_position(snippet: Snippet, number: int, seed: int) -> int:
    """Return the position of the sentence that a draft of this number is about: one after the other, shuffled."""
    positions = claimable(snippet)
    Random(json.dumps([seed, snippet.id])).shuffle(positions)
    return positions[number % len(positions)]


def draft_form(template: Template, kinds: Kinds, seed: int) -> DraftForm[Snippet]:
    """Return the form of a draft: two claims and the changed sentence, of the first possible of the shuffled kinds."""
    listed = template.bound("kinds", "\n".join(f"{name}: {kind.change}" for name, kind in kinds.items()))

    def prompts(snippet: Snippet, number: int) -> Iterator[Prompt]:
        names = kinds_for(snippet, kinds)
        Random(json.dumps([seed, snippet.id, number])).shuffle(names)
        sentence = sentences(snippet.content)[drawn_position(snippet, number, seed)]
        ordered = listed.bound("order", ", ".join(names)).bound("sentence", defused(on_one_line(sentence)))
        return about(ordered, "", [snippet])

    text = {"type": "string"}
    return DraftForm(object_schema({**dict.fromkeys(TEXTS, text), "kind": {"enum": list(kinds)}}), prompts)


def written_rows(
    subject: Snippet, drafts: Sequence[Generation], tally: Tally, seen: set[str], kinds: Kinds, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the `WrittenClaims` of each draft without a fault."""
    own, allowed = tuple(map(on_one_line, sentences(subject.content))), kinds_for(subject, kinds)
    for number, draft in enumerate(drafts):
        reply = parse_reply(draft.text)
        texts = [on_one_line(reply.text(key)) for key in TEXTS]
        position, kind = drawn_position(subject, number, seed), reply.text("kind")
        fault = _fault([own[position], *texts], draft.capped, seen) or ("empty" if kind not in allowed else None)
        if fault:
            tally[fault] += 1
            continue
        seen.update(map(normalised, texts))
        yield asdict(WrittenClaims(f"{subject.id}:{number}", kind, subject.title, own, position, *texts))


def _fault(texts: Sequence[str], capped: bool, seen: set[str]) -> str | None:
    """Return the name of the count of a fault of what was written, which stands after its sentence; None without."""
    words = list(map(normalised, texts))
    if capped or not all(words):
        return "cut" if capped else "empty"
    if any(len(text.split()) < SHORTEST for text in words[1:]):
        return "short"
    if len(set(words)) < len(words):
        return "copied"
    return None if seen.isdisjoint(words[1:]) else "duplicates"


def agreed_rows(
    subject: WrittenClaims, drafts: Sequence[Generation], tally: Tally, seen: set[str], kinds: Kinds
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each claim if the judge's replies repeat the labels of both, and no rule speaks against one."""
    rows = list(subject.rows(kinds[subject.kind]))
    faults = [_disagreement(row, draft.text) for row, draft in zip(rows, drafts, strict=True)]
    for start in range(0, ROWS, 2):
        both = slice(start, start + 2)
        if any(faults[both]):
            for fault in faults[both]:
                tally[fault or "unpaired"] += 1
            continue
        for row in rows[both]:
            yield {key: value for key, value in asdict(row).items() if key != "snippet"} | {"kind": subject.kind}


def _disagreement(row: ClaimRow, reply: str) -> str | None:
    """Return the name of the count of what speaks against a row's label; None if nothing does."""
    text = _evidence(row)
    if verdict_of(reply, text) != row.label:
        return "disagreed"
    if row.label != "supports" or not row.sentences:
        return None
    aliases, sentence = aliases_for(row.claim, text), row.sentences[row.rationale[0]]
    return "vetoed" if assess(analyse(row.claim, aliases), analyse(sentence, aliases)).vetoes else None


def _evidence(row: ClaimRow) -> str:
    return row.text.contents if row.text else ""


def judge_form(template: Template, kinds: Kinds, controls: Sequence[str]) -> DraftForm[WrittenClaims]:
    """Return the form of a judge's reply on the row of a number."""

    def prompts(written: WrittenClaims, number: int) -> Iterator[Prompt]:
        row = list(written.rows(kinds[written.kind]))[number]
        yield judge_prompt(template, _evidence(row), row.claim, controls)

    return DraftForm(SCHEMA, prompts)


def generate_claims(job: GenerationJob, corpus: Sequence[str], name: str | None, limit: int | None) -> Tally:
    """Generate claims of a corpus's snippets, or else of an index's; with a `limit` of so many that are drawn.

    What the model writes goes to OUT.written first, then it judges that.
    """
    job.check("--per-snippet")
    template = load_template("claim", job.template, "sentence", FIELDS)
    judging, kinds, opened = judge_template(), read_kinds(), open_generator(job.settings)
    judge = replace(job, draws=Draws(ROWS, QUOTE_TOKENS, 0.0, job.draws.seed))
    with open_snippets(job.settings, corpus, name) as (source, snippets):
        identity = {
            **asdict(job.draws),
            "limit": limit,
            "source": source,
            "generator": opened.identity,
            "prompt": template.sha256,
            "kinds": {key: asdict(kind) for key, kind in kinds.items()},
            "judge": judging.sha256,
        }

        def begin() -> tuple[Sequence[WrittenClaims], Tally, PromptedWriter[WrittenClaims]]:
            form = draft_form(template, kinds, job.draws.seed)
            writer = PromptedWriter(opened.generator, form, job.draws, opened.at_a_time)
            written, counts = _written(job, identity, writer, partial(draw, snippets, limit, job.draws.seed), kinds)
            asked = judge_form(judging, kinds, opened.generator.controls)
            return written, counts, PromptedWriter(opened.generator, asked, judge.draws, opened.at_a_time)

        return judge.generate("Judging claims", identity, partial(agreed_rows, kinds=kinds), begin)


def _written(
    job: GenerationJob,
    identity: Mapping[str, Any],
    writer: PromptedWriter[Snippet],
    drawn: Callable[..., tuple[list[Snippet], int]],
    kinds: Kinds,
) -> tuple[list[WrittenClaims], Tally]:
    """Return what the model writes beside the job's rows, or has written before, and its counts."""
    job = replace(job, out=job.out.with_name(f"{job.out.name}.written"))

    def begin() -> tuple[list[Snippet], Tally, PromptedWriter[Snippet]]:
        chosen, unsuitable = drawn(suits=lambda snippet: bool(claimable(snippet)))
        return chosen, {"snippets": len(chosen), "unsuitable": unsuitable}, writer

    make_rows = partial(written_rows, kinds=kinds, seed=job.draws.seed)
    counts = job.generate("Writing claims", identity, make_rows, begin)
    own = {"written": counts.pop("rows"), **dict.fromkeys(FAULTS_OF_ROWS, 0)}
    return list(Rows(job.out, identity, WrittenClaims).read()), counts | own
