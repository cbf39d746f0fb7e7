"""PubMed XML: real and generated records field by field, and everything that is no PubMed XML."""

import gzip
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.corpus.pubmed import date_of
from biorag.corpus.readers import Reject, read_changes
from biorag.corpus.sources import Source
from biorag.errors import BadInputError
from biorag.types import Deletion, Snippet
from tests.pubmed_records import PIECES, article, deletions, file_of, record

RECORDS = 300


def written(folder: Path, content: bytes, name: str = "pubmed25n0001.xml") -> Source:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Source(name, path)


def read(source: Source) -> tuple[list[Snippet | Deletion], list[Reject]]:
    rejects: list[Reject] = []
    return list(read_changes(source, rejects.append)), rejects


def test_generated_records_with_every_feature_are_read_exactly(tmp_path):
    random = Random("every feature")
    made = [record(random, pmid) for pmid in range(1, RECORDS + 1)]
    removed = random.sample(range(1, 10**8), 50)
    source = written(tmp_path, file_of(*(one.xml for one in made), deletions(*removed)), "pubmed25n0001.xml.gz")
    found, rejects = read(source)
    assert rejects == []
    assert found[: len(made)] == [one.snippet for one in made]
    assert found[len(made) :] == [Deletion(str(pmid)) for pmid in removed]
    joined = file_of(*(one.xml for one in made)).decode()
    assert all(piece in joined for piece, _ in PIECES)
    kinds = [set(one.snippet.metadata) for one in made]
    of_references = ("authors", "group_authors", "doi", "pmcid", "volume", "issue", "pages", "issn")
    for field in ("errata", "retraction", "concern", "references", "mesh", "revised", "year", *of_references):
        assert any(field in kind for kind in kinds), f"{field} was never drawn"
    assert {one.snippet.retracted for one in made} == {True, False}
    assert {one.snippet.metadata["abstract"] for one in made} == {True, False}


def test_a_record_without_an_abstract_is_its_title(tmp_path):
    ((found,), rejects) = read(written(tmp_path, article(1, "A letter.").encode()))
    assert (found.title, found.content, found.contents, rejects) == ("A letter.", "", "A letter.", [])
    assert found.metadata["abstract"] is False


def test_escaped_markup_is_left_out_as_markup_is(tmp_path):
    title = "Loss of &lt;i&gt;TP53&lt;/i&gt; and &amp;lt;b&amp;gt;CO&lt;sub&gt;2&lt;/sub&gt;, p &lt; 0.05"
    ((found,), _) = read(written(tmp_path, article(1, title).encode()))
    assert found.title == "Loss of TP53 and CO2, p < 0.05"


# --- bad records, one by one

NO_PMID = article(1, "T").replace('<PMID Version="1">1</PMID>', "")
NO_CITATION = "PubmedArticle has no MedlineCitation with an Article"
BAD = {
    NO_PMID: "PMID '' is not a positive whole number",
    article(0, "Zero"): "PMID '0' is not a positive whole number",
    article(1, "x").replace(">1<", ">" + "9" * 5000 + "<"): "is not a positive whole number",
    article(1, "x").replace(">1<", ">١<"): "is not a positive whole number",
    article(1, "x").replace('Version="1"', 'Version="first"'): "PMID version 'first' is not a positive whole number",
    article(1, ""): "PMID 1 has neither title nor abstract",
    article(1, "a &nbsp; b"): "the entity '&nbsp;' is not declared",
    "<PubmedArticle/>": NO_CITATION,
    "<PubmedArticle><MedlineCitation/></PubmedArticle>": NO_CITATION,
    "<PubmedBookArticle><BookDocument/></PubmedBookArticle>": "PMID '' is not a positive whole number",
    deletions(0): "PMID '0' is not a positive whole number",
}


@pytest.mark.parametrize("bad", BAD, ids=BAD.values())
def test_a_bad_record_is_one_reject_and_the_others_are_read(tmp_path, bad):
    found, rejects = read(written(tmp_path, file_of(article(11, "Before."), bad, article(12, "After."), deletions(13))))
    assert [change.id for change in found] == ["11", "12", "13"]
    ((name, line, reason, text, damaged, *_),) = rejects
    assert (name, line, damaged) == ("pubmed25n0001.xml", 4, False)
    assert BAD[bad] in reason
    assert text.startswith(("<PubmedArticle", "<PubmedBookArticle", "<PMID")) and len(text) <= 2000


# --- files that cannot be read on

WHOLE = file_of(article(1, "One.", "x" * 100), article(2, "Two.", "y" * 100))


def test_a_truncated_file_gives_what_came_before(tmp_path):
    cut = WHOLE[: WHOLE.index(b"yyy")]
    found, rejects = read(written(tmp_path, cut))
    assert [change.id for change in found] == ["1"]
    assert [(reject.damaged, reject.line) for reject in rejects] == [(True, 4)]
    assert "not well-formed XML (Premature end of data" in rejects[0].reason


BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
DAMAGED = {
    "entity bomb": (
        "<!DOCTYPE PubmedArticleSet "
        f'[<!ENTITY e0 "ha">{BOMB}]><PubmedArticleSet>{article(1, "&e11;")}</PubmedArticleSet>',
        "Maximum entity amplification factor exceeded",
    ),
    "external entity": (
        '<!DOCTYPE PubmedArticleSet [<!ENTITY f SYSTEM "file:///etc/passwd">]><PubmedArticleSet>'
        f"{article(1, '&f;')}</PubmedArticleSet>",
        "declares entities",
    ),
    "parameter entity": (
        '<!DOCTYPE PubmedArticleSet [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd">%p;]><PubmedArticleSet>'
        f"{article(1, 'x')}</PubmedArticleSet>",
        "declares entities",
    ),
    "other XML": (f"<html>{article(1, 'x')}</html>", "its root is 'html'"),
    "nothing": ("", "not well-formed XML"),
    "text after the end": (WHOLE.decode() + "more", "not well-formed XML"),
    "control character": (WHOLE.decode().replace("One.", "O&#1;ne."), "not well-formed XML"),
    "long record": (
        f"<PubmedArticleSet>{article(1, '<i>ab</i>' * 2_000_000)}</PubmedArticleSet>",
        "a record of more than 16 MiB",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_that_is_not_pubmed_s_is_refused_in_a_sentence(tmp_path, kind):
    content, reason = DAMAGED[kind]
    found, rejects = read(written(tmp_path, content.encode()))
    assert [change.id for change in found] in ([], ["1", "2"]) and (kind == "text after the end" or not found)
    assert [reject.damaged for reject in rejects] == [True]
    assert reason in rejects[0].reason and "\n" not in rejects[0].reason and len(rejects[0].reason) < 250


def test_a_record_in_wide_characters_is_read(tmp_path):
    content = file_of(article(1, "Ähnlich.")).decode().replace("utf-8", "utf-16").encode("utf-16")
    assert [change.title for change in read(written(tmp_path, content))[0]] == ["Ähnlich."]


PEAK = """
import resource, sys
from pathlib import Path
from biorag.corpus.pubmed import date_of, read_records
from biorag.corpus.sources import Source
count = sum(1 for _ in read_records(Source("x", Path(sys.argv[1]))))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(records: int) -> int:
        source = written(tmp_path, file_of(*(article(pmid, "T.", "word " * 400) for pmid in range(1, records + 1))))
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(source.path)], capture_output=True, text=True, check=True
        )
        count, kilobytes = map(int, done.stdout.split())
        assert count == records
        return kilobytes

    assert peak(20_000) - peak(200) < 3_000, "a file of 47 MB takes 3 MB more than one of 0.5 MB"


# --- whatever the bytes

PARTS = [
    *(b"<PubmedArticleSet>", b"</PubmedArticleSet>", b"<PubmedArticle>", b"</PubmedArticle>", b"<DeleteCitation>"),
    *(b'<PMID Version="">', b"</MedlineCitation>", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"&#0;", b"<![CDATA["),
    *(b"]]>", b"<!--", b"\xff\xfe", b"<x:y/>"),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_records_raise_nothing_but_our_errors(tmp_path, data):
    content = bytearray(file_of(record(Random(data.draw(st.integers(0, 50))), 5).xml, deletions(9)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        width = data.draw(st.integers(0, 40))
        content[place : place + width] = data.draw(st.binary(max_size=4) | st.sampled_from(PARTS))
    source = written(tmp_path, bytes(content), data.draw(st.sampled_from(["mutated.xml", "mutated.xml.gz"])))
    found, rejects = read(source)
    assert all(isinstance(change, Snippet | Deletion) for change in found)
    assert all(isinstance(reject, Reject) and reject.reason for reject in rejects)
    if rejects:
        with pytest.raises(BadInputError):
            list(read_changes(source))


@pytest.mark.parametrize(
    ("parts", "date"),
    [
        (("2019", "September", "3"), "2019-09-03"),
        (("2019", "Sept"), "2019-09"),
        (("2019", "12", "31"), "2019-12-31"),
        (("2019", "13"), "2019"),
        (("2019", "Spring", "3"), "2019"),
        (("2019", "Feb", "40"), "2019-02"),
        (("about 2019", "Feb"), ""),
    ],
)
def test_a_date_is_as_exact_as_its_parts(parts, date):
    assert date_of(*parts) == date
