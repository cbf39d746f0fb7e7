"""A file of each format against golden snippets, which `python -m tests.corpus.test_formats` writes again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source
from tests.corpus.samples import FRONT, MARKDOWN, PAGE, read, samples, word

GOLDEN = Path(__file__).with_name("golden.json")
SECTIONS = MARKDOWN + b"\n### Renal *failure*\n\nHalf of it.\n## Risks ##\nFew.\n"
REAL = "pubmed-29768149.xml"


def files() -> dict[str, bytes]:
    """Return a file of each format by name."""
    return {**samples(), "front.md": FRONT, "sections.md": SECTIONS, "gout.html": PAGE, "word.docx": word()}


def outcome(folder: Path, name: str, content: bytes) -> dict:
    snippets, rejects = read(folder / name, content)
    read_back = {"snippets": list(map(asdict, snippets)), "rejects": [reject._asdict() for reject in rejects]}
    return json.loads(json.dumps(read_back))


@pytest.mark.parametrize("name", files())
def test_a_file_of_each_format_gives_its_snippets(name, tmp_path):
    assert outcome(tmp_path, name, files()[name]) == json.loads(GOLDEN.read_text())[name]


def test_the_real_record_of_pubmed(shared_data):
    (snippet,) = read_changes(Source("real", shared_data / "pubmed-xml" / REAL))
    assert json.loads(json.dumps(asdict(snippet))) == json.loads(GOLDEN.read_text())[REAL]


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        golden = {name: outcome(Path(folder), name, content) for name, content in files().items()}
    real = next(read_changes(Source("real", Path("../shared/data/pubmed-xml") / REAL)))
    GOLDEN.write_text(json.dumps({**golden, REAL: asdict(real)}, ensure_ascii=False, indent=1) + "\n")
