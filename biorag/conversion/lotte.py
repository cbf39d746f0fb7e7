r"""LoTTE as it is published with ColBERTv2 (Santhanam et al., 2022): a folder such as `lotte/science/dev`.

It has `collection.tsv` (`pid\ttext`) and, for search and for forum queries, `questions.KIND.tsv` (`qid\ttext`) and
`qas.KIND.jsonl` with `qid` and `answer_pids`. Ids of questions begin at 0 in both, so theirs here are `KIND_qid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from biorag.conversion.entries import Entry, read_each
from biorag.conversion.items import JudgedQuestion, Request
from biorag.corpus.readers import OnReject, as_id, snippet_of
from biorag.corpus.sources import Source, read_lines
from biorag.errors import MissingError
from biorag.types import Snippet
from biorag.utils.parsing import parsed

KINDS = ("search", "forum")
COLLECTION = "collection.tsv"
T = TypeVar("T")


class _Answers(TypedDict):
    """A line of `qas.KIND.jsonl`."""

    qid: Annotated[int, Field(ge=0)]
    answer_pids: list[Annotated[int, Field(ge=0)]]


def convert(request: Request, on_reject: OnReject | None) -> Iterator[JudgedQuestion | Snippet]:
    """Yield the questions of each kind with their relevant passages, then the passages of the collection."""
    folder = request.paths[0]
    for kind in [request.split] if request.split else KINDS:
        yield from _questions(folder, kind, on_reject)
    yield from _read_tsv(folder / COLLECTION, on_reject, lambda id, text: snippet_of({"id": id, "content": text}))


def _questions(folder: Path, kind: str, on_reject: OnReject | None) -> Iterator[JudgedQuestion]:
    texts = dict(_read_tsv(folder / f"questions.{kind}.tsv", on_reject, lambda id, text: (id, text)))
    path = folder / f"qas.{kind}.jsonl"

    def parse(entry: Entry) -> JudgedQuestion:
        answers = parsed(_Answers, entry.text, extra="ignore")
        id = str(answers["qid"])
        if id not in texts:
            raise ValueError(f"qid {id} is not in questions.{kind}.tsv")
        return JudgedQuestion(f"{kind}_{id}", texts[id], kind, {str(pid): 1 for pid in answers["answer_pids"]})

    return read_each(str(path), _lines(path), parse, on_reject)


def _read_tsv(path: Path, on_reject: OnReject | None, make: Callable[[str, str], T]) -> Iterator[T]:
    r"""Yield the result of `make` for each line `id\ttext`."""

    def parse(entry: Entry) -> T:
        id, tab, text = entry.text.partition("\t")
        if not tab or not text.strip():
            raise ValueError("not an id and a text with a tab between")
        return make(as_id(id.strip(), "id"), text.strip())

    return read_each(str(path), _lines(path), parse, on_reject)


def _lines(path: Path) -> Iterator[Entry]:
    if not path.is_file():
        raise MissingError(
            f"{path} is not there: format lotte reads a folder as it is unpacked, such as lotte/science/dev"
        )
    for number, line in read_lines(Source(str(path), path)):
        yield Entry(number, "", line)
