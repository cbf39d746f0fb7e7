"""Claims of known truth, made from a dataset's ideal answers and the snippets that they were written from."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biorag.benchmarks.answers.questions import read_expert_answers
from biorag.benchmarks.verification.falsification import FALSIFIERS, OTHER
from biorag.benchmarks.verification.rewording import reworded
from biorag.corpus.datasets import Dataset, load_dataset
from biorag.corpus.sentences import sentences, terms
from biorag.errors import BadInputError, check_name
from biorag.types import ClaimLabel, Fetch, Snippet

VERBATIM, REWORDED, AS_WRITTEN = "verbatim", "reworded", "as written"
TRUE_KINDS = (VERBATIM, REWORDED, AS_WRITTEN)
HALVES = ("all", "development", "test")
SNIPPETS = 5  # of a question, as many as an answer is made from
SHORTEST, LONGEST = 6, 60  # words of a sentence that claims are made of
FALSIFIED = 3  # claims of a sentence at most
OTHERS = 40  # sentences of other questions among which the nearest is taken
ALIKE = 0.6  # share of words from which a sentence of another question may say the same


_ASKS = re.compile(
    r"^(?:\w+: )?(?:To|Whether|Does|Do|Is|Are|Can) |\b(?:aim|objective|purpose|goal)(?:s|ed)?\b|"
    r"whether|hypothes|investigate",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, how it was made of `source`, and the snippets that it is held against; `label` is what people say."""

    id: str
    question: str
    kind: str
    text: str
    source: str
    snippets: tuple[Snippet, ...]
    label: ClaimLabel | None = None


@dataclass(frozen=True, slots=True)
class RepeatedSentence:
    """A question with its snippets, the sentence of theirs that its answer repeats, and the answer's own sentence."""

    id: str
    question: str
    snippets: tuple[Snippet, ...]
    sentence: str
    written: str


def read_claims(folder: Path, fetch: Fetch, half: str, seed: int, limit: int | None = None) -> list[Claim]:
    """Return the claims of a half of a dataset in BEIR layout with `answers.jsonl[.gz]`, of at most `limit` questions.

    `fetch` returns the snippets of the answers. Raises `MissingError` if a file is not there; `BadInputError` naming
    file, line and reason, or if no answer repeats a snippet; `UsageError` if there is no such half.
    """
    check_name("half", half, HALVES)
    data = load_dataset(folder)
    answers = {id: expert.ideal for id, expert in read_expert_answers(folder).items()}
    return list(make_claims(list(passages(data, answers, fetch, seed, half))[:limit], seed))


def in_half(id: str, half: str) -> bool:
    """Return whether a question is in the half "development" or "test", which a hash of its id decides; or in "all"."""
    odd = hashlib.sha256(id.encode()).digest()[0] % 2
    return half == "all" or odd == (half == "test")


def passages(
    dataset: Dataset, answers: Mapping[str, Sequence[str]], fetch: Fetch, seed: int, half: str = "all"
) -> Iterator[RepeatedSentence]:
    """Yield a passage for each question of a half that has one.

    Its sentence is one of the ideal answers' that stands in a snippet, else the snippets' sentence that shares most
    words with the answer. Raises `BadInputError` if there is none.
    """
    none = True
    for question in dataset.questions:
        if not in_half(question.id, half):
            continue
        ids = list(dataset.qrels[question.id])
        stored = fetch(ids)
        snippets = tuple(stored[id] for id in ids if id in stored)
        written = [sentence for answer in answers.get(question.id, ()) for sentence in _usable(answer)]
        candidates = [sentence for snippet in snippets for sentence in _usable(snippet.content)]
        if not written or not candidates:
            continue
        rng = random.Random(f"{seed} {question.id}")
        plain = {_plain(sentence): sentence for sentence in candidates}
        verbatim = sorted({plain[_plain(sentence)] for sentence in written if _plain(sentence) in plain})
        target = terms(" ".join(written))
        sentence = rng.choice(verbatim) if verbatim else max(candidates, key=lambda text: len(terms(text) & target))
        others = sorted({text for text in written if _plain(text) not in plain})
        ordered = sorted(snippets, key=lambda snippet: sentence not in snippet.content)[:SNIPPETS]
        none = False
        yield RepeatedSentence(
            question.id, question.text, tuple(ordered), sentence, rng.choice(others) if others else ""
        )
    if none:
        raise BadInputError(f"the index has no snippet that an answer of {dataset.name} repeats: name another (--name)")


def _usable(text: str) -> list[str]:
    """Return the sentences that assert something: no questions, no aims, no pieces of sentences."""
    return [
        sentence
        for sentence in sentences(text)
        if SHORTEST <= len(sentence.split()) <= LONGEST
        and sentence[0].isalnum()
        and not sentence.endswith("?")
        and not _ASKS.search(sentence)
    ]


def _plain(sentence: str) -> str:
    return re.sub(r"\W+", " ", sentence).strip().lower()


def make_claims(made: Sequence[RepeatedSentence], seed: int) -> Iterator[Claim]:
    """Yield the claims of each passage: verbatim, reworded, as the answer has it, and falsified in different ways.

    The kinds that few sentences allow come first, so that there are enough of each.
    """
    for position, passage in enumerate(made):
        rng = random.Random(f"{seed} {passage.id} claims")
        texts = {VERBATIM: passage.sentence, REWORDED: reworded(passage.sentence, rng), AS_WRITTEN: passage.written}
        source = " ".join(snippet.contents for snippet in passage.snippets if passage.sentence in snippet.content)
        falsified = {kind: falsify(passage.sentence, source, rng) for kind, falsify in FALSIFIERS.items()}
        applicable = [kind for kind in _by_rarity(rng) if falsified[kind]][:FALSIFIED]
        texts |= {kind: falsified[kind] for kind in applicable}
        if other := _other_sentence(made, position, rng):
            texts[OTHER] = other
        for kind, text in texts.items():
            if text:
                yield Claim(f"{passage.id}:{kind}", passage.question, kind, text, passage.sentence, passage.snippets)


def _by_rarity(rng: random.Random) -> list[str]:
    scarce, common = ["unit", "hedge", "population", "number", "name"], ["negation", "direction"]
    return [*scarce[:2], rng.choice(common), *scarce[2:], *common]


def _other_sentence(made: Sequence[RepeatedSentence], position: int, rng: random.Random) -> str | None:
    """Return the nearest of some sentences of other questions that says something else."""
    here = terms(" ".join(snippet.contents for snippet in made[position].snippets))
    drawn = [made[rng.randrange(len(made))].sentence for _ in range(OTHERS)]
    shares = [(len((words := terms(sentence)) & here) / len(words), sentence) for sentence in drawn if terms(sentence)]
    return max(((share, sentence) for share, sentence in shares if share < ALIKE), default=(0.0, None))[1]
