"""The consistency filter: which hit is a row's passage, and under which instruction it is searched."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from biorag.errors import BadInputError
from biorag.lab.synthesis.consistency import keep_consistent
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.types import Snippet
from tests.answering.test_pipeline import MemoryIndex
from tests.fakes import HashEncoder


class PromptedEncoder(HashEncoder):
    query_prompt = ""

    def encode_queries(self, texts):
        return super().encode_queries([self.query_prompt + text for text in texts])


def indexed(snippets, query_prompt=""):
    encoder = PromptedEncoder(dimension=32)
    encoder.query_prompt = query_prompt
    index = MemoryIndex(snippets, encoder.encode_snippets([snippet.contents for snippet in snippets]))
    retrieval = Settings.of(home=Path("unused"), mode="dense", rerank=False).retrieval
    return SimpleNamespace(index=index, retriever=Retriever(index, encoder, None, retrieval), encoder=encoder)


def filtered(tmp_path, rows, snippets, keep_top, query_prompt=""):
    path, out, opened = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl", indexed(snippets, query_prompt)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    counts = keep_consistent(path, out, opened, keep_top, lambda _: None)
    assert opened.encoder.query_prompt == query_prompt
    return counts, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_passages_are_known_by_id_text_or_document(tmp_path):
    blocks = [
        Snippet("doc#0", "T", "aspirin fever", metadata={"document": "doc", "block": 0}),
        Snippet("doc#1", "T", "heparin clot", metadata={"document": "doc", "block": 1}),
        Snippet("other", "", "insulin sugar"),
        Snippet("twin", "", "warfarin vitamin"),
    ]
    rows = {
        "by id": {"query": "insulin", "positive": "not its text", "positive_id": "other"},
        "by text": {"query": "insulin", "positive": "Insulin, SUGAR."},
        "by the document": {"query": "aspirin fever", "positive": "T. heparin clot", "positive_id": "doc#1"},
        "by its document's id": {"query": "aspirin fever", "positive": "T. heparin clot", "positive_id": "doc"},
        "same text, another id": {"query": "insulin", "positive": "insulin sugar", "positive_id": "twin"},
        "below": {"query": "insulin", "positive": "aspirin fever", "positive_id": "doc#0"},
        "text below": {"query": "insulin", "positive": "warfarin vitamin"},
        "absent": {"query": "insulin", "positive": "insulin sugar", "positive_id": "gone"},
        "empty": {"query": " ? ", "positive": "insulin sugar", "positive_id": "other"},
    }
    counts, kept = filtered(tmp_path, rows.values(), blocks, keep_top=1)
    assert kept == list(rows.values())[:5]
    assert counts == {"read": 9, "kept": 5, "below": 2, "absent": 1, "empty": 1, "share_kept": 0.5556}


@pytest.mark.parametrize(
    ("query_prompt", "found"),
    [
        ("Warfarin vitamin\nQuery: ", ["fever", "sugar", "vitamin"]),
        ("Warfarin vitamin: ", ["vitamin", "vitamin", "vitamin"]),
    ],
)
def test_a_query_is_searched_under_its_rows_instruction_where_the_prompt_has_a_place(tmp_path, query_prompt, found):
    passages = {"fever": "aspirin fever", "sugar": "insulin sugar", "vitamin": "warfarin vitamin"}
    asked = ["Aspirin fever", "Insulin sugar", ""]
    rows = [
        {"query": "effects", "positive": passage, **({"instruction": instruction} if instruction else {})}
        for instruction in asked
        for passage in passages.values()
    ]
    snippets = [Snippet(id, "", text) for id, text in passages.items()]
    _, kept = filtered(tmp_path, rows, snippets, keep_top=1, query_prompt=query_prompt)
    expected = dict(zip(asked, found, strict=True))
    assert kept == [row for row in rows if row["positive"] == passages[expected[row.get("instruction", "")]]]


def test_a_bad_line_is_named_and_nothing_is_written(tmp_path):
    with pytest.raises(BadInputError, match=r"rows\.jsonl, line 2: positive: Field required"):
        filtered(tmp_path, [{"query": "a", "positive": "b"}, {"query": "a"}], [Snippet("s", "", "aspirin")], 3)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
