"""Training rows: read from JSON Lines, BEIR folders or a corpus's titles; split and capped."""

from __future__ import annotations

import hashlib
import heapq
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from biorag.corpus.datasets import Dataset, first_file, load_dataset
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sentences import sentence_starts
from biorag.corpus.sources import BEIR_CORPUS, Source, read_lines
from biorag.errors import BadInputError, MissingError
from biorag.types import Fetch, Snippet, TrainingRow
from biorag.utils.parsing import fault_of, parse_json
from biorag.utils.progress import batched

NEXT_STEP = "fix or remove the line"
PAIR = ("query", "positive")  # of a line that is an array, as sentence-transformers publishes pairs
FETCHED_AT_ONCE = 1000
_NUMBERED = re.compile(r"negative_([0-9]{1,9})\Z")
_SEPARATORS = re.compile(r"[\W_]+")


def _kept(candidates: Iterable[TrainingRow | None], names: Iterable[str]) -> tuple[list[TrainingRow], dict[str, int]]:
    """Return the rows to keep, and counts of those kept and dropped; None is a judgement of an unknown snippet.

    `rows` and `questions` (distinct by `normalised` text) were kept. Dropped were `duplicates` of an earlier query and
    positive under the same instruction, rows with an `empty` side, and judgements of `unknown` snippets, neither in the
    folder's corpus nor in the index. `gold` negatives were removed: positives of the same question in another row.

    Raises BadInputError naming the files if no row is left.
    """
    rows: list[TrainingRow] = []
    # Of millions of texts only the hashes are kept beside the rows.
    questions, pairs, read = set[bytes](), set[bytes](), set[bytes]()
    passages: dict[bytes, str] = {}  # one string for all questions of a passage
    dropped = Counter(duplicates=0, empty=0, unknown=0)
    for row in candidates:
        question, positive = (_key(row.query), _key(row.positive)) if row else (b"", b"")
        if row is None:
            dropped["unknown"] += 1
        elif not question or not positive:
            dropped["empty"] += 1
        elif (key := (pair := question + positive) + _key(row.instruction)) in read:
            dropped["duplicates"] += 1
        else:
            read.add(key)
            questions.add(question)
            pairs.add(pair)
            same = passages.setdefault(positive, row.positive)
            rows.append(replace(row, positive=same) if same == row.positive else row)
    if not rows:
        raise BadInputError(
            f"no training row in {', '.join(names) or 'no file'} (with an empty side: {dropped['empty']}; "
            f"of snippets that neither the corpus nor the index has: {dropped['unknown']}); "
            "give rows with a query and a positive"
        )
    cleaned = [_without(row, pairs) if row.negatives else row for row in rows]
    gold = sum(len(row.negatives) for row in rows) - sum(len(row.negatives) for row in cleaned)
    return cleaned, {"rows": len(rows), "questions": len(questions), **dropped, "gold": gold}


def _without(row: TrainingRow, gold: Set[bytes]) -> TrainingRow:
    question = _key(row.query)
    return replace(row, negatives=tuple(text for text in row.negatives if question + _key(text) not in gold))


def _key(text: str) -> bytes:
    """Return 16 bytes that are the same for texts with the same `normalised` words; none for a text without words."""
    words = normalised(text)
    return hashlib.blake2b(words.encode(), digest_size=16).digest() if words else b""


def normalised(text: str) -> str:
    """Return a text as it is compared: NFKC, casefolded, its words separated by one space.

    Words are of letters and digits of any script, not of underscores. A text without a word becomes empty.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _SEPARATORS.sub(" ", folded).strip()


def read_rows(paths: Sequence[Path], fetch: Fetch | None = None) -> tuple[list[TrainingRow], dict[str, int]]:
    """Return the training rows of JSON Lines files (gzip or not) and BEIR folders in their order, and `_kept`'s counts.

    A line has `query` (or `anchor`) and `positive`; negatives in `negative`, `negative_1`, `negative_2` …, or a
    list of texts `negatives`; optionally `kind`, `query_id`, `positive_id` and `instruction`. Or it is an array of a
    query and a positive. Null counts as absent,
    and so does a list `negatives` of objects, which mined files have beside the texts. Other keys are ignored.

    A folder gives one row for each question and relevant snippet of `qrels/train.tsv`, if it has that, or of
    `qrels/test.tsv`; the snippets come from its `corpus.jsonl`, if it has that, or from `fetch`.

    Rows whose query or positive has no word are dropped, and so are repetitions of a query and positive (both
    `normalised`) in any of the files.

    Raises MissingError if a path is not there, or a folder has no corpus and `fetch` is not given; BadInputError naming
    file, line and reason; or if no row is left.
    """
    return _kept((row for path in paths for row in _rows_of(path, fetch)), map(str, paths))


def _rows_of(path: Path, fetch: Fetch | None) -> Iterator[TrainingRow | None]:
    if path.is_dir():
        yield from _rows_of_folder(path, fetch)
    elif path.is_file():
        yield from (row for row, _ in parsed_rows(path))
    else:
        raise MissingError(f"training data {path} is not there: name a JSON Lines file, or a folder in BEIR's layout")


def read_title_abstract(
    sources: Sequence[Source], seed: int, cropping: bool = False
) -> tuple[list[TrainingRow], dict[str, int]]:
    """Return the `title_abstract_row` of each snippet: the pairs of a first, unsupervised phase of training.

    With `cropping` every row has two passages of the text, whose title counts for nothing (BMRetriever's Figure 4a).
    A snippet without a title, or any with `cropping`, of one sentence is dropped and counted as empty.

    Raises BadInputError naming file, line and reason; or if no row is left.
    """
    snippets = (snippet for source in sources for snippet in read_snippets(source, refuse))
    rows = (title_abstract_row(replace(snippet, title="") if cropping else snippet, seed) for snippet in snippets)
    return _kept(rows, (source.name for source in sources))


def title_abstract_row(snippet: Snippet, seed: int = 0) -> TrainingRow:
    """Return the row whose query is a snippet's title, and whose positive is its content.

    Without a title both are disjoint passages drawn with the seed (`disjoint_passages`), as in BMRetriever
    (arXiv:2404.18443, section 3.2). Of a single sentence the query is empty.
    """
    query, positive = snippet.title, snippet.content
    if not query:
        query, positive = disjoint_passages(positive, Random(json.dumps([seed, snippet.id])))
    return TrainingRow(query, positive, positive_id=snippet.id)


def disjoint_passages(text: str, random: Random) -> tuple[str, str]:
    """Return two passages of a text that share no sentence, in either order; of one sentence the first is empty.

    Each is one or more sentences in sequence. All pairs of such passages are equally likely; BMRetriever does not say
    how long its passages are.
    """
    starts = [0, *sentence_starts(text), len(text)]
    if len(starts) == 2:
        return "", text.strip()
    # Four of n + 2 numbers, of n sentences, are two ranges of sentences: the second may begin where the first ends.
    a, b, c, d = sorted(random.sample(range(len(starts) + 1), 4))
    passages = text[starts[a] : starts[b]].strip(), text[starts[c - 1] : starts[d - 1]].strip()
    return passages if random.random() < 0.5 else passages[::-1]


def split(rows: Sequence[TrainingRow], fraction: float, seed: int) -> tuple[list[TrainingRow], list[TrainingRow]]:
    """Return the rows to train on and those held out, about `fraction` of the questions.

    All rows of a question are on one side, which a hash of the seed and its `normalised` text alone decides: the same
    seed and fraction hold out the same questions in every command, whatever else is in the data, and a larger
    fraction holds out those of a smaller one and more.
    """
    training: list[TrainingRow] = []
    validation: list[TrainingRow] = []
    for row in rows:
        (validation if is_held_out(row.query, fraction, seed) else training).append(row)
    return training, validation


def is_held_out(question: str, fraction: float, seed: int) -> bool:
    """Return whether `split` keeps a question from training."""
    return _draw(seed, normalised(question)) < fraction * 2**64


def cap_positives(rows: Sequence[TrainingRow], limit: int, seed: int) -> list[TrainingRow]:
    """Return the rows in their order, at most `limit` of each question, drawn with the seed.

    A row's draw depends on the seed and its own texts: a larger limit keeps a smaller one's rows.
    """
    draws: dict[str, list[tuple[int, int]]] = {}
    for index, row in enumerate(rows):
        question = normalised(row.query)
        draws.setdefault(question, []).append((_draw(seed, question, normalised(row.positive)), index))
    drawn = {index for group in draws.values() for _, index in heapq.nsmallest(limit, group)}
    return [row for index, row in enumerate(rows) if index in drawn]


def row_random(seed: int, row: TrainingRow) -> Random:
    """Return the generator of a row's draws, which does not depend on the other rows."""
    return Random(json.dumps([seed, normalised(row.query), normalised(row.positive)]))


def sha256_of(records: Iterable[Any]) -> str:
    """Return the SHA-256 of records as lines of JSON, hex."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _draw(seed: int, *texts: str) -> int:
    """Return 64 bits that depend on the seed and the texts."""
    digest = hashlib.blake2b("\0".join([str(seed), *texts]).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def read_records(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `(location, object)` for each line of a JSON Lines file, gzip or not; `location` names file and line.

    A line that is an array of as many values as there are `columns` is an object of these.

    Raises BadInputError naming file, line and reason.
    """
    for number, line in read_lines(Source(str(path), path)):
        location = f"{path}, line {number}"
        try:
            record = parse_json(line)
        except ValueError as error:
            raise BadInputError(f"{location}: not JSON ({error}); {NEXT_STEP}") from None
        if columns and isinstance(record, list) and len(record) == len(columns):
            record = dict(zip(columns, record, strict=True))
        if not isinstance(record, dict):
            raise BadInputError(f"{location}: not a JSON object but {type(record).__name__}; {NEXT_STEP}")
        yield location, record


def training_dataset(folder: Path) -> Dataset:
    """Return the questions of a BEIR folder that rows are made of: of `qrels/train.tsv`, if it has that."""
    return load_dataset(folder, "train" if (folder / "qrels" / "train.tsv").is_file() else "test")


def _rows_of_folder(folder: Path, fetch: Fetch | None) -> Iterator[TrainingRow | None]:
    """Yield a row for each question and relevant snippet of a BEIR folder; None if the snippet is unknown."""
    dataset = training_dataset(folder)
    snippets = _passages(folder, dict.fromkeys(id for judged in dataset.qrels.values() for id in judged), fetch)
    for question in dataset.questions:
        for id in dataset.qrels[question.id]:
            known = id in snippets
            yield TrainingRow(question.text, snippets[id].contents, (), "", question.id, id) if known else None


def _passages(folder: Path, wanted: Mapping[str, None], fetch: Fetch | None) -> Mapping[str, Snippet]:
    """Return the wanted snippets by id, from the folder's corpus or else the index, without unknown ids."""
    if corpus := first_file(folder, BEIR_CORPUS):
        snippets = read_snippets(Source(str(corpus), corpus), refuse)
        return {snippet.id: snippet for snippet in snippets if snippet.id in wanted}
    if fetch is None:
        raise MissingError(
            f"{folder} has judgements but no passages: give --name INDEX of an index that has them, or put a "
            "corpus.jsonl in the folder"
        )
    fetched: dict[str, Snippet] = {}
    for ids in batched(wanted, FETCHED_AT_ONCE):
        fetched |= fetch(ids)
    return fetched


def parsed_rows(path: Path) -> Iterator[tuple[TrainingRow, Mapping[str, Any]]]:
    """Yield each row of a JSON Lines file with its record; see `read_records`."""
    for location, record in read_records(path, PAIR):
        try:
            yield parse_row(record), record
        except ValueError as error:
            raise BadInputError(f"{location}: {error}; {NEXT_STEP}") from None


class RowRecord(BaseModel):
    """A line of training rows; `negative_1`, `negative_2` … are among its other keys."""

    model_config = ConfigDict(strict=True, extra="allow")

    query: str = Field(validation_alias=AliasChoices("query", "anchor"))  # the second is sentence-transformers'
    positive: str
    negative: str | None = None
    negatives: list[str] | list[dict[str, Any]] = []
    kind: str = ""
    query_id: str = ""
    positive_id: str = ""
    instruction: str = ""

    def all_negatives(self) -> Iterator[str]:
        """Yield `negative`, then `negative_1`, `negative_2` … by their numbers, then the texts of `negatives`."""
        others = self.model_extra or {}
        numbered = sorted((int(match[1]), key) for key in others if (match := _NUMBERED.match(key)))
        yield from () if self.negative is None else (self.negative,)
        for _, key in numbered:
            if not isinstance(others[key], str):
                raise ValueError(f"{key}: Input should be a valid string")
            yield others[key]
        yield from (text for text in self.negatives if isinstance(text, str))


def parse_row(record: Mapping[str, Any]) -> TrainingRow:
    """Return the row of a line; raise ValueError with the reason if it is not one."""
    try:
        row = RowRecord.model_validate({key: value for key, value in record.items() if value is not None})
    except ValidationError as error:
        raise ValueError(fault_of(error)) from None
    negatives = tuple(row.all_negatives())
    positive_words = normalised(row.positive)
    for negative in map(normalised, negatives):
        if not negative:
            raise ValueError("a negative is empty")
        if negative == positive_words:
            raise ValueError("a negative is the same text as the positive")
    instruction = row.instruction.strip()
    return TrainingRow(row.query, row.positive, negatives, row.kind, row.query_id, row.positive_id, instruction)
