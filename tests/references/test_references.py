"""References: round trips through other libraries, and NLM's own samples."""

from __future__ import annotations

import csv
import io
import json
import re

import bibtexparser
import pytest
import rispy
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.corpus.readers import read_snippets
from biorag.corpus.references import csl_fields
from biorag.corpus.sources import Source
from biorag.references.escaping import in_latex
from biorag.references.formats import (
    COLUMNS,
    bibtex,
    citation,
    comma_separated,
    csl_json,
    markdown,
    ris,
    tab_separated,
    vancouver,
)
from biorag.references.reference import (
    Author,
    Genre,
    author_of,
    reference_line,
    reference_of,
    references_of,
    source_line,
)
from biorag.types import Hit, Snippet

FIELDS = "authors group_authors doi pmcid journal issn volume pages year date language type mesh retraction concern"
MANY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


LATEX = ["\\", "{", "}", "$", "&", "#", "%", "_", "~", "^", "<", ">", "|", '"', "@", "β", "≥", "µ", "−"]
WORDS = st.one_of(
    st.sampled_from(
        ["Study", "and", "AND", "others", "von", "de la", "O'Byrne", "Ødegård", "王", "E. coli", "TY  - X"]
    ),
    st.sampled_from(LATEX),
    st.sampled_from(["\\textbf{x}", "}}", "{{", "\\", "$x_1$", "100%", "=1+1", "ER  - "]),
    st.text(st.characters(categories=["L", "N", "P", "S"], max_codepoint=0x24F), min_size=1, max_size=8),
)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
# bibtexparser drops a part of a name that is an escaped sign alone.
PARTS = TEXTS.map(lambda text: f"N {text.replace(',', '')}".strip())
PERSONS = st.tuples(PARTS, PARTS).map(", ".join) | st.tuples(PARTS, PARTS, st.sampled_from(["Jr", "3rd"])).map(
    ", ".join
)
GROUPS = TEXTS


@st.composite
def snippets(draw: st.DrawFn) -> Snippet:
    """A snippet of a paper whose record has whatever it has."""
    groups = draw(st.lists(GROUPS, max_size=2))
    authors = draw(st.permutations([*draw(st.lists(PERSONS, max_size=8)), *groups]))
    fields = {
        "authors": authors,
        "group_authors": groups,
        "journal": draw(st.just("") | TEXTS),
        "journal_abbreviation": draw(st.just("") | TEXTS),
        "volume": draw(st.sampled_from(["", "12", "12 Suppl 1"]) | TEXTS),
        "issue": draw(st.sampled_from(["", "3-4"]) | TEXTS),
        "pages": draw(st.sampled_from(["", "284-7", "1865-1876", "e12", "S93-9", "1-2; 5"]) | TEXTS),
        "issn": draw(st.sampled_from(["", "1533-4406"])),
        "doi": draw(
            st.sampled_from(["", "10.1056/NEJMoa1715274", "10.1002/(SICI)1<1::AID>3.0.CO;2-#", "10.1000/a_b%c"])
        ),
        "pmcid": draw(st.sampled_from(["", "PMC1"])),
        "date": draw(st.sampled_from(["", "2018", "2018-05", "2018-05-17"])),
        "type": draw(
            st.lists(st.sampled_from(["Journal Article", "Preprint", "Book", "Dataset", "Review"]), max_size=2)
        ),
        "mesh": draw(st.lists(TEXTS, max_size=3)),
        "concern": draw(st.lists(st.integers(1, 9), max_size=1)),
        "retracted": draw(st.booleans()),
    }
    pmid = draw(st.none() | st.integers(1, 10**8))
    return Snippet(
        draw(TEXTS), draw(TEXTS), draw(TEXTS), pmid, {name: value for name, value in fields.items() if value}
    )


def hit(snippet: Snippet, rank: int = 1) -> Hit:
    return Hit(rank, snippet, 0.5)


def paper(**fields: object) -> Snippet:
    """The sample reference of the ICMJE, with other fields where they are given."""
    names = ["Rose, M E", "Huerbin, M B", "Melick, J", "Marion, D W", "Palmer, A M", "Schiding, J K", "Kochanek, P M"]
    metadata = {
        "authors": names,
        "journal": "Brain research",
        "journal_abbreviation": "Brain Res",
        "date": "2002",
        "volume": "935",
        "issue": "1-2",
        "pages": "40-46",
        **fields,
    }
    title = "Regulation of interstitial excitatory amino acid concentrations after cortical contusion injury."
    return Snippet("12062471", title, "Abstract.", 12062471, metadata)


def hits_of(snippet: Snippet):
    return [hit(snippet)]


def one_space(text: str) -> str:
    return " ".join(text.split())


# --- CSL-JSON


@MANY
@given(snippets())
def test_csl_json_is_read_back_by_the_reader_of_corpora(snippet):
    (values,) = json.loads(csl_json(hits_of(snippet)))
    reference, read = reference_of(snippet), csl_fields(values)
    for author, written in zip(reference.authors, values.get("author", []), strict=True):
        parts = [written.get(part, "") for part in ("family", "given", "suffix")]
        assert parts == list(author[:3]) or written == {"literal": author.family}
    for name in ("volume", "doi", "issue", "pmcid", "issn"):
        assert name not in read or one_space(str(getattr(reference, name))).startswith(read[name][:5])
    assert read.get("year") == (reference.date[0] if reference.date else None)
    assert values["type"] == "article-journal" or reference.genre != Genre.ARTICLE


# --- RIS


def read_ris(text: str) -> list[dict]:
    return rispy.loads(text, skip_unknown_tags=False)


@MANY
@given(snippets())
def test_ris_is_read_back_by_rispy(snippet):
    (entry,) = read_ris(ris(hits_of(snippet)))
    reference = reference_of(snippet)
    assert entry["title"] == reference.title
    names = entry.get("authors", [])
    assert len(names) == len(reference.authors)
    for name, author in zip(names, reference.authors, strict=True):
        if author.group:
            assert "," not in name
            assert one_space(name) == one_space(author.family.replace(",", " "))
        else:
            assert name == ", ".join(filter(None, author[:3]))
    assert entry.get("doi", "") == reference.doi
    assert entry.get("volume", "") == reference.volume
    assert (entry.get("start_page", ""), entry.get("end_page", "")) == reference.page_range
    assert entry.get("year", "") == (str(reference.date[0]) if reference.date else "")
    assert entry.get("accession_number", "") == (str(snippet.pmid) if snippet.pmid else "")
    assert tuple(entry.get("notes", ())) == reference.notes
    assert tuple(entry.get("keywords", ())) == reference.keywords
    assert entry["abstract"] == reference.abstract


def test_a_paper_without_metadata_is_told_by_its_file():
    snippet = Snippet("a.pdf#page=2", "Gout", "Text", None, {"file": "a.pdf", "page": 2, "doi": "10.1/x"})
    (entry,) = read_ris(ris(hits_of(snippet)))
    assert (entry["notes"], entry["doi"]) == (["File: a.pdf"], "10.1/x")
    (item,) = read_bibtex(bibtex(hits_of(snippet)))
    assert (field(item, "note"), field(item, "doi")) == ("File: a.pdf", "10.1/x")


# --- BibTeX


def read_bibtex(text: str) -> list:
    library = bibtexparser.parse_string(text, parse_stack=[])
    assert library.failed_blocks == []
    return library.entries


def field(entry, name: str) -> str:
    """A field as it stands, without the braces around it."""
    value = entry[name]
    assert value[0] == "{" and value[-1] == "}"
    return value[1:-1]


@MANY
@given(snippets())
def test_bibtex_is_read_back_by_bibtexparser(snippet):
    (entry,) = read_bibtex(bibtex(hits_of(snippet)))
    reference = reference_of(snippet)
    assert entry.key == reference.key
    assert re.fullmatch("[A-Za-z0-9_]+", entry.key)
    for name, value in (("journal", reference.journal), ("doi", reference.doi)):
        assert (field(entry, name) if value else "") == in_latex(value)
    words = [in_latex(word) for word in reference.title.split()]
    title = field(entry, "title").split(" ")
    assert all(found in (word, f"{{{word}}}") for found, word in zip(title, words, strict=True))
    names = split_multiple_persons_names(field(entry, "author")) if reference.authors else []
    assert len(names) == len(reference.authors)
    for name, author in zip(names, reference.authors, strict=True):
        if author.group:
            assert name == f"{{{in_latex(author.family)}}}"
            continue
        parts = parse_single_name_into_parts(name)
        family = " ".join([*parts.von, *parts.last])
        assert one_space(family.strip("{}") if family.startswith("{") and family.endswith("}") else family)
        assert " ".join(parts.jr) == author.suffix


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50% of R&D", r"50\% of R\&D"),
        ("a_b #1 $5", r"a\_b \#1 \$5"),
        (r"\input{x}", r"{\textbackslash}input{$\lbrace$}x{$\rbrace$}"),
        ("β2, p < 0.05, ≥ 3", r"{$\beta$}2, p {$<$} 0.05, {$\geq$} 3"),
        ("Ødegård", "Ødegård"),
    ],
)
def test_latex_characters_are_escaped(text, latex):
    assert in_latex(text) == latex


def test_names_that_bibtex_would_take_apart_are_in_braces():
    names = ["King, M L, Jr", "Smith and Sons, J", "van der Berg, Jan", "Health and Human Services, Department of"]
    text = bibtex(hits_of(paper(authors=names, group_authors=names[-1:])))
    (line,) = (line for line in text.splitlines() if line.startswith("  author"))
    assert line == (
        "  author = {King, Jr, M L and {Smith and Sons}, J and van der Berg, Jan and "
        "{Health and Human Services, Department of}},"
    )


def test_keys_are_stable_and_unique():
    key = reference_of(paper()).key
    assert key == "Rose2002_12062471"
    assert reference_of(paper(doi="10.1/x", volume="9")).key == key
    same = [Snippet(f"x{number}", "T", "C", None, {"authors": ["Rose, M"], "year": 2002}) for number in range(500)]
    keys = [reference_of(snippet).key for snippet in same]
    assert len(set(keys)) == 500
    assert reference_of(Snippet("y", "T", "C", 7, {"authors": ["Ødegård, Å"]})).key == "degard_7"


def test_references_come_in_the_order_of_their_best_hits():
    first, second = Snippet("a#0", "A", "Best.", 1), Snippet("b", "B", "Text.", 2)
    found = references_of([hit(first), hit(second, 2), hit(Snippet("a#1", "A", "Other.", 1), 3)])
    assert [(reference.pmid, reference.abstract) for reference in found] == [(1, "Best."), (2, "Text.")]


@pytest.mark.parametrize("before", ["", "http://dx.doi.org/", "DOI: "])
def test_a_doi_is_one_with_its_resolver_too(before):
    reference = reference_of(Snippet("x", "T", "C", None, {"doi": f"{before}10.1000/x_y"}))
    assert (reference.doi, reference.url) == ("10.1000/x_y", "https://doi.org/10.1000/x_y")


# --- Vancouver


def test_the_sample_reference_of_the_icmje():
    assert citation(reference_of(paper())) == (
        "Rose ME, Huerbin MB, Melick J, Marion DW, Palmer AM, Schiding JK, et al. Regulation of interstitial "
        "excitatory amino acid concentrations after cortical contusion injury. Brain Res. 2002;935(1-2):40-6. "
        "PMID: 12062471."
    )


@pytest.mark.parametrize(
    ("names", "groups", "written"),
    [
        (["Halpern, Scott D", "Ubel, Peter A", "Caplan, Arthur L"], [], "Halpern SD, Ubel PA, Caplan AL"),
        (
            ["Vallancien, G", "Emberton, M", "Harving, N", "van Moorselaar, R J", "Alf-One Study Group"],
            ["Alf-One Study Group"],
            "Vallancien G, Emberton M, Harving N, van Moorselaar RJ; Alf-One Study Group",
        ),
        (["Diabetes Prevention Program Research Group"], [], "Diabetes Prevention Program Research Group"),
        (["King, Martin Luther, Jr."], [], "King ML Jr"),
        (["Sartre, Jean-Paul", "Silva, Maria de Fátima"], [], "Sartre JP, Silva MF"),
        (["A, B"] * 6, [], "A B, A B, A B, A B, A B, A B"),
        (["A, B"] * 7, [], "A B, A B, A B, A B, A B, A B, et al"),
    ],
)
def test_authors_as_nlm_writes_them(names, groups, written):
    text = citation(reference_of(paper(authors=names, group_authors=groups)))
    assert text.startswith(written + ". ")


def test_a_reference_says_that_it_was_retracted():
    snippet = paper(retracted=True, concern=[1])
    assert citation(reference_of(snippet)).endswith("Retracted article. Expression of concern.")
    for write in (ris, bibtex, vancouver, markdown):
        assert "Retracted article" in write(hits_of(snippet))


def test_the_real_record(shared_data):
    path = shared_data / "pubmed-xml" / "pubmed-29768149.xml"
    (snippet,) = read_snippets(Source("real", path))
    assert citation(reference_of(snippet)) == (
        "O'Byrne PM, FitzGerald JM, Bateman ED, Barnes PJ, Zhong N, Keen C, et al. Inhaled Combined "
        "Budesonide-Formoterol as Needed in Mild Asthma. N Engl J Med. 2018 May 17;378(20):1865-76. "
        "doi: 10.1056/NEJMoa1715274. PMID: 29768149."
    )
    assert source_line(reference_of(snippet)) == "O'Byrne PM, et al. · 2018 · N Engl J Med · RCT"
    (entry,) = read_ris(ris(hits_of(snippet)))
    assert (entry["type_of_reference"], len(entry["authors"]), entry["doi"]) == ("JOUR", 10, "10.1056/NEJMoa1715274")


# --- tables


@MANY
@given(snippets())
def test_tables_are_read_back(snippet):
    hits = hits_of(snippet)
    for text, delimiter in ((comma_separated(hits), ","), (tab_separated(hits), "\t")):
        header, row = csv.reader(io.StringIO(text), delimiter=delimiter)
        assert tuple(header) == COLUMNS
        assert len(row) == len(COLUMNS)
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
        reference = reference_of(snippet)
        for column in ("title", "year", "journal", "doi", "pmcid"):
            told = " ".join(getattr(reference, column).split())
            assert " ".join(row[header.index(column)].split()) in (told, f"'{told}"), column
    assert len(markdown(hits).splitlines()) == 3
    assert len(re.findall(r"(?<!\\)\|", markdown(hits).splitlines()[2])) == 8


# --- records


@given(
    st.dictionaries(
        st.sampled_from(FIELDS.split()),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
            max_leaves=6,
        ),
    )
)
def test_metadata_of_any_type_is_no_error(fields):
    snippet = Snippet("x", "T", "C", None, fields)
    for write in (ris, bibtex, vancouver, markdown, comma_separated):
        assert write(hits_of(snippet))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"authors": ["Smith, Jane Ann"], "year": 2019, "journal": "The Lancet"}, "Smith JA · 2019 · The Lancet"),
        ({"authors": ["A Study Group"], "type": ["Journal Article"]}, "A Study Group · Journal Article"),
        ({"type": ["Review", "Systematic Review", "Meta-Analysis"]}, "Meta-analysis, Systematic review"),
        (
            {"type": ["Comparative Study", "Journal Article", "Multicenter Study", "Letter"]},
            "Comparative Study, Multicenter Study",
        ),
    ],
)
def test_a_source_is_one_line(fields, line):
    assert source_line(reference_of(Snippet("x", "T", "C", None, fields))) == line


def test_a_snippet_without_any_field_is_cited_by_its_title():
    assert citation(reference_of(Snippet("x", "Old snippet", "Text."))) == "Old snippet."
    assert source_line(reference_of(Snippet("x", "Old snippet", "Text."))) == ""
    assert reference_of(Snippet("x", "", "")).genre is Genre.OTHER


@pytest.mark.parametrize(
    ("name", "groups", "author"),
    [
        ("O'Byrne, Paul M", [], Author("O'Byrne", "Paul M")),
        ("King, Martin, Jr", [], Author("King", "Martin", "Jr")),
        ("Group of X, Y", ["Group of X, Y"], Author("Group of X, Y", group=True)),
        ("The Group", [], Author("The Group", group=True)),
        ("A, B, C, D", [], Author("A, B, C, D", group=True)),
        (", x", [], Author(", x", group=True)),
    ],
)
def test_names(name, groups, author):
    assert author_of(name, groups) == author


def test_a_chapter_is_one_of_a_book_and_a_years_alone_no_date():
    metadata = {"authors": ["Iyer, N."], "journal": "Handbook of acute care", "year": 2009, "type": ["Book Chapter"]}
    hits = hits_of(Snippet("1", "Sepsis and DNA in ICUs", "Give antibiotics.", None, metadata))
    assert ris(hits).startswith("TY  - CHAP\n") and "T2  - Handbook of acute care" in ris(hits)
    assert "DA  -" not in ris(hits)
    assert bibtex(hits).startswith("@incollection{") and "booktitle = {Handbook of acute care}" in bibtex(hits)
    assert "title = {Sepsis and {DNA} in {ICUs}}" in bibtex(hits)
    assert vancouver(hits) == "1. Iyer N. Sepsis and DNA in ICUs. In: Handbook of acute care. 2009.\n"


def test_a_row_of_markdown_names_the_doi_where_there_is_no_pmid():
    hits = hits_of(Snippet("x.pdf#page=1", "Gout", "Text.", None, {"doi": "10.5555/gout.1"}))
    assert "[doi:10.5555/gout.1](<https://doi.org/10.5555/gout.1>)" in markdown(hits)


def test_a_reference_without_a_title_has_its_first_words():
    text = "Bleomycin is potentially capable of inducing a diffuse interstitial pneumonitis in humans who are old."
    reference = vancouver(hits_of(Snippet("pubmed_83311", "", text, 83311)))
    first = "[Bleomycin is potentially capable of inducing a diffuse interstitial pneumonitis in humans …]"
    assert reference == f"1. {first}. PMID: 83311.\n"


@pytest.mark.parametrize(
    ("snippet", "line"),
    [
        (
            Snippet(
                "a#1",
                "Does it work?",
                "Text.",
                12,
                {"authors": ["Smith, John", "Roe, P"], "journal": "Lancet", "year": 2019, "page": 4},
            ),
            "Smith J, et al. Does it work? Lancet 2019; p. 4. PMID 12",
        ),
        (Snippet("pubmed_3", "", "One two three."), "One two three. pubmed_3"),
        (Snippet("7", "pubmed_7", "w " * 13, 7), f"{'w ' * 12}… PMID 7"),
        (Snippet("x7", "x7", "Of it.", None, {"doi": "10.1/x", "journal": "Gut"}), "Of it. Gut. doi:10.1/x"),
        (Snippet("x7", "x7", ""), "x7."),
        (
            Snippet("d#0", "smith2019", "Text", None, {"file": "b/smith2019.pdf", "page": 2}),
            "Text. p. 2. b/smith2019.pdf",
        ),
        (Snippet("demo_1", "TP53", "Text"), "TP53. demo_1"),
    ],
)
def test_a_source_is_named_as_far_as_it_is_known(snippet, line):
    assert reference_line(snippet) == line
