"""Which reader takes a file, what a folder takes and leaves, and the kinds that nothing reads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from biorag.corpus.readers import read_changes
from biorag.corpus.sources import Source, check_kinds, find_files, reader_of
from biorag.errors import BadInputError
from biorag.types import Snippet
from tests.cli import done, failed, invoke
from tests.corpus.samples import MEDLINE, PMC, write_samples

PUBMED = b'<?xml version="1.0"?>\n<!DOCTYPE PubmedArticleSet [ ]>\n<!-- a > b --><PubmedArticleSet></PubmedArticleSet>'


def source(path: Path, content: bytes) -> Source:
    path.write_bytes(content)
    return Source(path.name, path)


def snippets(found: Source) -> list[Snippet]:
    return [change for change in read_changes(found) if isinstance(change, Snippet)]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("corpus", b' \n{"id": 1}', "MedRAG or BEIR JSONL"),
        ("empty", b"", "MedRAG or BEIR JSONL"),
        ("a.xml", PUBMED, "PubMed XML"),
        ("a.xml", PMC, "PMC XML"),
        ("a.xml", PMC.decode().replace("UTF-8", "UTF-16").encode("utf-16"), "PMC XML"),
        ("a.xml", b"<html></html>", "PubMed XML"),
        ("a.TSV", b"", "CSV or TSV"),
        ("pubmed-set.txt", MEDLINE, "MEDLINE"),
        ("a.txt", b'{"id": 1}', "MedRAG or BEIR JSONL"),
        ("a.md", b"<p>Text", "text or Markdown"),
        ("a.json", b'{"id": 1}', "MedRAG or BEIR JSONL"),
        ("a.json", b"\xef\xbb\xbf\n[{}]", "CSL-JSON"),
        ("a.PDF", b"", "PDF"),
        ("stream", b"%PDF-1.7", "PDF"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_kind_is_told_by_name_root_element_or_first_bytes(tmp_path, name, content, kind, packed):
    if packed and name.upper().endswith("PDF"):
        return
    found = source(
        tmp_path / (f"{name}.gz" if packed and "." in name else name), gzip.compress(content) * packed or content
    )
    assert reader_of(found).name == kind


def test_a_root_element_is_found_in_no_time_after_a_prologue_without_end(tmp_path):
    found = source(tmp_path / "a.xml", b"<?a?><!--b--><!DOCTYPE c [" * 3000)
    assert reader_of(found).name == "PubMed XML"


@pytest.mark.parametrize(
    ("name", "why"), [("a.pptx", "a zip archive"), ("a.xlsx", "of no kind"), ("notes", "of no kind")]
)
def test_a_file_of_an_unknown_kind_is_refused_with_the_kinds(tmp_path, name, why):
    unknown = source(tmp_path / name, b"PK\3\4 what" if name == "a.pptx" else b"what")
    good = source(tmp_path / "a.jsonl", b'{"id": "1", "content": "x"}')
    with pytest.raises(BadInputError) as caught:
        check_kinds([good, unknown])
    for part in (name, why, "PDF (.pdf)", "RIS (.ris)", "CSV or TSV (.csv, .tsv)", "MEDLINE (.nbib)"):
        assert part in str(caught.value)
    failed(invoke("index", good.path, unknown.path, "--on-bad-line", "skip", home=tmp_path), 3, name, "PDF (.pdf)")


def test_a_folder_counts_what_it_takes_and_what_it_leaves(tmp_path):
    folder = tmp_path / "papers"
    write_samples(folder)
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name in ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "beir/about.txt", ".git.txt"):
        (folder / name).write_bytes(b"")
    for name in ("README.md", "LICENSE.txt", "a.pptx", "b.PPTX", "Makefile", ".hidden", "beir/zotero.sqlite"):
        (folder / name).write_bytes(b"x")
    (folder / "link").symlink_to(folder / "beir")
    found = find_files([str(folder)], tmp_path / "spool")
    assert found.taken == {
        "CSL-JSON": 1,
        "CSV or TSV": 2,
        "EPUB": 1,
        "MEDLINE": 1,
        "MedRAG or BEIR JSONL": 2,
        "PDF": 2,
        "PMC XML": 1,
        "PubMed XML": 1,
        "RIS": 1,
        "text or Markdown": 2,
    }
    assert found.left == {
        "Zotero library ('biorag index zotero:', or with its path, reads it)": 1,
        ".pptx": 2,
        "READMEs and the like": 2,
        "beside a BEIR corpus": 3,
        "hidden": 2,
        "links to folders": 1,
        "without a suffix": 1,
    }
    assert sum(found.taken.values()) + sum(found.left.values()) == 1 + sum(map(Path.is_file, folder.rglob("*")))


def test_ids_begin_with_the_path_in_the_folder_that_was_named(tmp_path):
    (tmp_path / "papers" / "sub").mkdir(parents=True)
    (tmp_path / "papers" / "sub" / "a.txt").write_text("Text.")
    (found,) = find_files([str(tmp_path / "papers")], tmp_path / "spool").sources
    assert [snippet.id for snippet in snippets(found)] == ["sub/a.txt#p1"]
    (found,) = find_files([str(tmp_path / "papers" / "sub" / "a.txt")], tmp_path / "spool").sources
    assert [snippet.id for snippet in snippets(found)] == ["a.txt#p1"]


def test_all_kinds_are_indexed_and_a_search_says_page_and_section(tmp_path, tiny_encoder):
    folder = tmp_path / "papers"
    write_samples(folder)
    chosen = ["--encoder", tiny_encoder, "--on-bad-line", "skip"]
    ended = invoke("index", folder, *chosen, "--json", home=tmp_path / "home")
    report = done(ended)
    assert (report["snippets"], report["rejected"]) == (20, 1), "the scan"
    assert report["files"]["taken"]["PDF"] == 1 and report["files"]["left"] == {}
    assert report["files"]["rejected"] == {"PDF": 1}
    assert (
        "took 1 CSL-JSON, 2 CSV or TSV, 1 EPUB, 1 MEDLINE" in ended.stderr
        and "columns id=PMID, title=Title" in ended.stderr
    )
    again = done(invoke("index", folder, *chosen, "--json", home=tmp_path / "home"))
    assert (again["added"], again["updated"]) == (0, 0)

    def first(query: str) -> dict:
        words = ("--mode", "bm25", "--no-rerank", "-k", 1)
        return done(invoke("search", query, *words, "--json", home=tmp_path / "home"))["hits"][0]

    hit = first("neuropathy prevention page")
    assert (hit["id"], hit["location"]) == ("paper.pdf#page=2", "p. 2")
    hit = first("regression statistics")
    assert (hit["id"], hit["pmid"], hit["location"]) == ("PMC456#s1p3", 123, "Methods > Statistics")
    assert "location" not in first("jsonlines")
    answer = done(invoke("ask", "Does pyridoxine prevent neuropathy on the second page?", "--answer-anyway",
                         "--mode", "bm25", "--no-rerank", "--json", home=tmp_path / "home"))  # fmt: skip
    assert "p. 2" in [citation.get("location") for citation in answer["citations"]]
