"""Hits with references of all kinds, the hostile ones too."""

from __future__ import annotations

from hypothesis import strategies as st

from biorag.types import Hit, Snippet

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
