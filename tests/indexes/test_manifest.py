"""The manifest: its file, and files that are refused."""

import json
from dataclasses import fields, replace

import pytest

from biorag.errors import MismatchError
from biorag.indexes.catalogue import summaries
from biorag.indexes.manifest import FORMAT, BlockParameters, Bm25Parameters, Manifest, SourceRecord, read_manifest
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity
from biorag.utils.files import write_json

MANIFEST = Manifest(
    name="pubmed",
    encoder=EncoderIdentity("all-MiniLM-L6-v2", "abc", "5" * 64, 384, {"tokenizer": "6" * 64}),
    similarity="cosine",
    quantized=True,
    bm25=Bm25Parameters(0.9, 0.4, 101.25),
    store={"kind": "qdrant", "url": "http://localhost:6333"},
    created="2026-01-01T00:00:00Z",
    updated="2026-01-02T00:00:00Z",
    sources=(SourceRecord("naïve.jsonl", "a" * 64, 10, 2), SourceRecord("b.jsonl.gz", "b" * 64, 20, 3, 4, 5)),
    snippets=5,
    seconds=1.5,
    complete=True,
    versions={"biorag": "0.1.0"},
    blocks=BlockParameters(300, 60),
    fields={"year": "number"},
)


def test_the_file_says_what_design_asks_for(tmp_path):
    write_json(tmp_path / "manifest.json", MANIFEST.to_json())
    values = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert values == {
        "name": "pubmed",
        "encoder": {
            "id": "all-MiniLM-L6-v2",
            "revision": "abc",
            "sha256": "5" * 64,
            "dimension": 384,
            "configuration": {"tokenizer": "6" * 64},
        },
        "similarity": "cosine",
        "quantized": True,
        "bm25": {"k": 0.9, "b": 0.4, "avg_len": 101.25, "language": "english", "text": "comparable", "terms": "words"},
        "store": {"kind": "qdrant", "url": "http://localhost:6333"},
        "created": "2026-01-01T00:00:00Z",
        "updated": "2026-01-02T00:00:00Z",
        "sources": [
            {"name": "naïve.jsonl", "sha256": "a" * 64, "bytes": 10, "snippets": 2, "deletions": 0, "rejected": 0},
            {"name": "b.jsonl.gz", "sha256": "b" * 64, "bytes": 20, "snippets": 3, "deletions": 4, "rejected": 5},
        ],
        "snippets": 5,
        "seconds": 1.5,
        "complete": True,
        "versions": {"biorag": "0.1.0"},
        "tokens": None,
        "blocks": {"tokens": 300, "overlap": 60},
        "checksums": None,
        "vectors": None,
        "fields": {"year": "number"},
        "format": FORMAT,
    }
    assert set(values) == {field.name for field in fields(Manifest)}
    assert read_manifest(tmp_path / "manifest.json") == MANIFEST


DAMAGED = [
    *(json.dumps({**MANIFEST.to_json(), "format": version}) for version in (FORMAT + 1, "1", None)),
    *("", '{"format": 1,', '{"format": 1} {}', "[]"),
]
VALUES = [
    ({"encoder": {}}, "encoder"),
    ({"encoder": {"surplus": 1}}, "encoder"),
    ({"bm25": None}, "bm25"),
    ({"bm25": {"k": 0.9, "b": 0.4, "avg_len": 5.0, "text": "as it stands"}}, "bm25"),
    ({"sources": [{"name": "a"}]}, "sources"),
    ({"store": {"kind": "qdrant"}}, "store"),
    ({"store": {"kind": "sqlite"}}, "store"),
    ({"surplus": 1}, "surplus"),
    ({"name": None}, "name"),
]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((text, f"this biorag reads {FORMAT}" if number < 3 else "is damaged") for number, text in enumerate(DAMAGED)),
        *((json.dumps({**MANIFEST.to_json(), **changes}), part) for changes, part in VALUES),
    ],
)
def test_what_is_no_manifest_of_this_version_is_refused(tmp_path, content, says):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(MismatchError) as caught:
        read_manifest(tmp_path / "manifest.json")
    assert caught.value.exit_code == 5
    for part in (str(tmp_path / "manifest.json"), "index the corpus again", says):
        assert part in str(caught.value)


def test_the_fingerprint_is_of_what_determines_results():
    same = replace(MANIFEST, created="x", updated="y", seconds=9.0, versions=None, sources=MANIFEST.sources[::-1])
    assert same.fingerprint() == MANIFEST.fingerprint()
    assert MANIFEST.fingerprint()["sources"] == ["a" * 64, "b" * 64]
    for change in (
        {"encoder": replace(MANIFEST.encoder, sha256="6" * 64)},
        {"similarity": "dot"},
        {"quantized": False},
        {"bm25": Bm25Parameters(0.9, 0.4, 99.0)},
        {"snippets": 6},
        {"sources": MANIFEST.sources[:1]},
    ):
        assert replace(MANIFEST, **change).fingerprint() != MANIFEST.fingerprint()


def test_an_index_whose_manifest_cannot_be_read_is_damaged_and_the_others_are_listed(tmp_path):
    settings = Settings.of(home=tmp_path)
    for name in ("a", "b"):
        (settings.indexes / name).mkdir(parents=True)
    (settings.indexes / "a" / "manifest.json").write_text(json.dumps(MANIFEST.to_json()))
    (settings.indexes / "b" / "manifest.json").mkdir()
    assert {one.name: one.state for one in summaries(settings)} == {"a": "complete", "b": "damaged"}
    with pytest.raises(MismatchError, match=r"cannot be read \(Is a directory\): check"):
        read_manifest(settings.indexes / "b" / "manifest.json")
