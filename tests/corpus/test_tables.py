"""CSV and TSV: columns named and guessed, quoting, bad rows, round trips with the csv module."""

from __future__ import annotations

import csv
import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.tables import parse_columns
from biorag.errors import UsageError
from biorag.types import Snippet
from tests.corpus.samples import read


def test_columns_are_guessed_from_the_header_and_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, "biorag.corpus.tables")
    content = "PMID,Title,Abstract,Journal/Book,Publication Year,Authors,Notes\n7,T,Text,Lancet,2019,A B; C D,mine\n"
    (found,), rejects = read(tmp_path / "a.csv", content.encode())
    metadata = {"journal": "Lancet", "year": 2019, "authors": ["A B", "C D"], "Notes": "mine"}
    assert (found, rejects) == (Snippet("7", "T", "Text", 7, metadata), [])
    assert "a.csv: columns id=PMID, title=Title, content=Abstract, PMID=PMID" in caplog.text


def test_columns_are_named_by_the_user(tmp_path):
    content = b"Key;Head;Body;Year\nk1;T;Text;2019?\n"
    columns = parse_columns("id=Key, title=Head,content=Body,published=Year")
    (found,), _ = read(tmp_path / "a.csv", content, columns)
    assert found == Snippet("k1", "T", "Text", None, {"published": "2019?"})
    _, (reject,) = read(tmp_path / "a.csv", content, parse_columns("id=Nothing,content=Body"))
    assert reject.damaged and "no column 'Nothing'" in reject.reason and "'Head'" in reject.reason
    for text in ("id", "id=", "=x", "id=a,,", "id=a,id=b"):
        with pytest.raises(UsageError, match="--columns"):
            parse_columns(text)


def test_columns_named_for_another_table_leave_a_table_to_its_header(tmp_path, caplog):
    columns = parse_columns("id=Key,content=Notes")
    (found,), rejects = read(tmp_path / "b.csv", b"PMID,Title,Abstract\n7,T,Text\n", columns)
    assert (found, rejects) == (Snippet("7", "T", "Text", 7, {}), [])
    assert "b.csv: none of the columns of --columns (Key, Notes): read by its own header" in caplog.text


def test_zoteros_table_tells_of_papers_alone(tmp_path):
    content = (
        "Key,Item Type,Title,DOI,Abstract Note,Date,Date Added,Language,Type,Extra,Manual Tags,Automatic Tags\n"
        "Q1,bookSection,T,10.5555/x,Text,2019-03-04,2021-01-01,en,,PMID: 31000001,asthma,Cardiology\n"
        "Q2,book,U,,Words,,2021-01-01,en,,,,\n"
    )
    (first, second), rejects = read(tmp_path / "zotero.csv", content.encode())
    facts = {"doi": "10.5555/x", "type": ["Book Chapter"], "keywords": ["asthma", "Cardiology"], "language": ["en"]}
    facts |= {"date": "2019-03-04", "year": 2019}
    assert (first.pmid, rejects) == (31000001, [])
    assert {name: value for name, value in first.metadata.items() if name != "Extra"} == facts
    assert (second.id, second.metadata["type"]) == ("zotero.csv#row=2", ["Book"]), "one without a DOI"


def test_no_column_takes_the_place_of_another(tmp_path):
    content = b"PMID,Abstract,content,_id,pmid,note,note\n7,Text,other,b,8,one,two\n"
    metadata = {"column 3": "other", "column 4": "b", "column 5": "8", "note": "one", "column 7": "two"}
    snippets = read(tmp_path / "a.csv", content, parse_columns("id=PMID,content=Abstract"))
    assert snippets == ([Snippet("7", "", "Text", 7, metadata)], [])


def test_years_and_retractions_are_read_as_spreadsheets_write_them(tmp_path):
    rows = "a,Text,2019.0,TRUE\nb,Text,2019,yes\nc,Text,2019.5,False\nd,Text,,in part\n"
    found, _ = read(tmp_path / "a.csv", f"id,text,year,retracted\n{rows}".encode())
    assert [one.metadata.get("year") for one in found] == [2019, 2019, 2019, None]
    assert [one.metadata["retracted"] for one in found] == [True, True, False, "in part"]


def test_rows_without_an_id_are_numbered_and_a_title_alone_is_a_text(tmp_path):
    found, _ = read(tmp_path / "a.tsv", b"title\ttext\nA\tone\n\nB\t\n")
    assert [(one.id, one.contents) for one in found] == [("a.tsv#row=1", "A. one"), ("a.tsv#row=2", "B")]


def test_a_table_without_a_text_column_says_what_to_do(tmp_path):
    _, (reject,) = read(tmp_path / "a.csv", b"query-id,score\n1,2\n")
    assert reject.damaged and "'query-id', 'score': name them" in reject.reason


BAD = {
    b'5,"a "b" c"\n': "cannot be read",
    b"5\n": "1 values, where the header has 2 columns",
    b"5,a,b\n": "3 values",
    b"5,na\xefve\n": "not UTF-8",
    b"5,a\0b\n": "NUL",
    b",text\n": "no 'id'",
    b"5,\n": "has no text",
    b"5," + b"x" * (2**20 + 1) + b"\n": "field larger than field limit",
}


@pytest.mark.parametrize("row", BAD, ids=BAD.values())
def test_a_bad_row_is_one_reject_and_the_others_are_read(tmp_path, row):
    found, rejects = read(tmp_path / "a.csv", b"\xef\xbb\xbfid,text\r\n1,one\r\n" + row + b"2,two\r\n")
    assert [one.id for one in found] == ["1", "2"]
    ((reject),) = rejects
    assert BAD[row] in reject.reason and reject.line == 3 and not reject.damaged and len(reject.text) <= 2000


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)


@given(rows=st.lists(st.tuples(cells, cells, cells), max_size=6), separator=st.sampled_from(",;\t"))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, rows, separator):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "title", "text"), *((f"r{place}", a, f"x{b}") for place, (a, b, _) in enumerate(rows))])
    found, rejects = read(tmp_path_factory.mktemp("t") / "a.csv", text.getvalue().encode())
    assert rejects == []
    assert [(one.id, one.title, one.content) for one in found] == [
        (f"r{place}", a.strip(), f"x{b}".strip()) for place, (a, b, _) in enumerate(rows)
    ]
