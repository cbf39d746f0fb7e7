r"""BMRetriever's instruction fine-tuning pairs (Xu et al., 2024, section 3.3): BMRetriever/biomed_retrieval_dataset.

The set is one JSON file, `ft_data.json`, of a query with its positive and negative passages a record. The names of
Tevatron (`positive_passages`) and FlagEmbedding (`pos`, `neg`), and questions with their `passages`, are read too.
BMRetriever's templates ("Instruct: …\nQuery: …", "Represent this passage\npassage: …") are taken apart: `biorag train
--instruct` puts them together again.

Synthesize-Train-Merge (Khattab et al. 2026, section 3.2.1) parts the set into four. It names some data sets of each, so
the others are ours: by BMRetriever's Tables 8 and 9 their sizes come near those of its Table 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from biorag.corpus.readers import OnReject
from biorag.lab.conversion.items import Entry, Request, read_array_or_lines
from biorag.training.instructions import dataset_key, read_tasks
from biorag.training.rows import normalised

QUERY = ("query", "question", "anchor")
POSITIVE = ("positive", "pos", "positive_passages", "positives", "passage", "passages")
NEGATIVE = ("negative", "neg", "negative_passages", "negatives", "hard_negative")
INSTRUCTION = ("instruction", "prompt", "task")
_QUERY_TEMPLATE = re.compile(r"\s*(?:Instruct:\s*)?(?P<instruction>[^\n]*?)\s*\n\s*Query:\s*(?P<query>.*)", re.DOTALL)
_PASSAGE_TEMPLATE = re.compile(r"\s*Represent this passage\.?\s*\n\s*passage:\s*", re.IGNORECASE)
# The data sets of each part; rows with any other instruction are generated ones.
PARTS = {
    "med-real": ("StackExchange", "MedNLI", "MQP", "MedQuad", "HealthcareMagic"),
    "search": ("MS Marco", "GooAQ"),
    "nlu": ("NQ", "FEVER", "ELI5", "NLI"),
}
OTHERS = "med-synth"


def convert(request: Request, on_reject: OnReject | None) -> Iterator[Mapping[str, Any] | None]:
    """Yield a row for each query and positive, with all negatives of the query; of a part, those of its instructions.

    A negative without words, or with the words of the positive, is left out; a record with an empty side is dropped
    and counted.
    """
    tasks = read_tasks("bmretriever")  # Table 9
    part_of = {normalised(tasks[dataset_key(name)]): part for part, names in PARTS.items() for name in names}
    for row in chain.from_iterable(request.read(read_array_or_lines, _rows, on_reject)):
        part = part_of.get(normalised(str(row.get("instruction", ""))), OTHERS) if row else None
        if request.split in (None, part) or row is None:
            yield row


def medi(request: Request, on_reject: OnReject | None) -> Iterator[Mapping[str, Any] | None]:
    """Yield a row of each record of MEDI (Su et al., 2023), whose texts each follow their instruction.

    The query's instruction is the row's. A record with an empty side, or whose negative has the positive's words, as
    records of classification have, is dropped and counted.
    """
    yield from request.read(read_array_or_lines, _medi_row, on_reject)


def _medi_row(entry: Entry) -> Mapping[str, Any] | None:
    record = entry.json_object()
    instruction, query = _instructed(record, "query")
    (_, positive), (_, negative) = _instructed(record, "pos"), _instructed(record, "neg")
    words = [normalised(text) for text in (query, positive, negative)]
    if not all(words) or words[1] == words[2]:
        return None
    return {"query": query, "positive": positive, "negatives": [negative], "instruction": instruction.strip()}


def _instructed(record: Mapping[str, Any], key: str) -> tuple[str, str]:
    match record.get(key):
        case [str(instruction), str(text)]:
            return instruction, text
    raise ValueError(f"{key!r} is not an instruction and a text")


def _rows(entry: Entry) -> list[Mapping[str, Any] | None]:
    record = entry.json_object()
    (query,) = _texts(record, QUERY)[:1] or [""]
    instruction = next((record[key] for key in INSTRUCTION if isinstance(record.get(key), str)), "")
    if match := _QUERY_TEMPLATE.fullmatch(query):
        instruction, query = match["instruction"], match["query"]
    positives = [_PASSAGE_TEMPLATE.sub("", text, count=1) for text in _texts(record, POSITIVE)]
    negatives = [_PASSAGE_TEMPLATE.sub("", text, count=1) for text in _texts(record, NEGATIVE, needed=False)]
    rows: list[Mapping[str, Any] | None] = []
    for positive in positives or [""]:
        if normalised(query) and (words := normalised(positive)):
            distinct = [text for text in dict.fromkeys(negatives) if normalised(text) not in ("", words)]
            optional = {"negatives": distinct, "instruction": instruction}
            rows.append(
                {"query": query, "positive": positive, **{key: value for key, value in optional.items() if value}}
            )
        else:
            rows.append(None)
    return rows


def _texts(record: Mapping[str, Any], keys: tuple[str, ...], needed: bool = True) -> list[str]:
    """Return the texts under the first key present: a text, or a list of texts or of passages."""
    key = next((key for key in keys if record.get(key) is not None), None)
    if key is None:
        if needed:
            raise ValueError(f"none of {', '.join(keys)} among its fields {', '.join(record) or '(none)'}")
        return []
    values = record[key] if isinstance(record[key], list) else [record[key]]
    texts = [_passage(value) if isinstance(value, dict) else value for value in values]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{key!r} is neither a text nor a list of texts or passages")
    return texts


def _passage(value: Mapping[str, Any]) -> Any:
    """Return the text of Tevatron's passage: its title and its text."""
    title, text = value.get("title") or "", value.get("text")
    return f"{title} {text}".strip() if isinstance(title, str) and isinstance(text, str) else None
