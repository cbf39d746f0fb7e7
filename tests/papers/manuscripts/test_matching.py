"""References of each style, and records that are theirs or not, with the fields that differ."""

import re

import pytest

from biorag.papers.manuscripts import listing
from biorag.papers.manuscripts.listing import items, parted
from biorag.papers.manuscripts.manuscript import ListedReference, Paragraph
from biorag.papers.manuscripts.matching import compared, matched
from biorag.references.authors import cited_authors
from biorag.references.journals import same_journal
from biorag.references.reading import place_in
from biorag.references.reference import Reference, reference_of
from biorag.types import Snippet

AUTHORS = ["Smith, Jane", "Doe, A B"]
FACTS = {"authors": AUTHORS, "year": 2019, "journal": "The New England journal of medicine", "volume": "380"}
RECORD = Snippet(
    "pubmed_1", "Aspirin in the prevention of fever: a randomised trial.", "Aspirin lowers fever.", 1,
    {**FACTS, "pages": "245-50", "doi": "10.1056/NEJMoa1"},
)  # fmt: skip
OTHER = Snippet("pubmed_2", "Statins and the risk of fracture in women.", "None.", 2, {"year": 2001, "retracted": True})
TITLE = "Aspirin in the prevention of fever: a randomised trial"
PROCEEDINGS = "Proceedings of the National Academy of Sciences of the United States of America"
STYLES = [
    f"Smith J, Doe AB. {TITLE}. N Engl J Med. 2019 Jan 5;380(3):245-50. doi: 10.1056/NEJMoa1. PMID: 1.",
    f"Smith, J., & Doe, A. B. (2019). {TITLE}. New England Journal of Medicine, 380(3), 245–250.",
    f"Smith, J. & Doe, A. B. {TITLE}. N. Engl. J. Med. 380, 245–250 (2019).",
    "Smith, Jane, and A. Doe. “Aspirin in the Prevention of Fever.” NEJM 380, no. 3 (2019): 245.",
    "*Smith J*, et al. Aspirin in the prevention of fever: a randomized trial. *NEJM* 2019;380:245",
    f"J. Smith and A. B. Doe, “{TITLE},” N. Engl. J. Med., vol. 380, no. 3, pp. 245–2010, Jan. 2019.",
    f"Smith, J., A. B. Doe, and C. Roe. 2019. {TITLE}. New England Journal of Medicine 380: 245–250.",
    f"Jane Smith, Ann B. Doe, and Chris van den Roe. {TITLE}. N Engl J Med, 380(3):245–250, 2019.",
    f"Smith J,, Doe AB. {TITLE} N Engl J Med 2019; 380:245-50.",
    f"{TITLE}. Smith J, Doe AB. N Engl J Med. 2019;380:245.",
    f"Smith, J. (2019) ‘{TITLE}’, New England Journal of Medicine, 380(3), pp. 245–250. Available at: https://x.org/1.",
]


def differences(reference: ListedReference, record: Reference):
    return list(compared(reference, record).differences)


def listed(text: str) -> ListedReference:
    (reference,) = items([Paragraph(f"1. {text}", 1, "")])
    return reference


@pytest.mark.parametrize("text", STYLES)
def test_a_right_reference_of_each_style_differs_in_nothing(text):
    assert differences(listed(text), reference_of(RECORD)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("2019", "2015", "year"),
        ("N Engl J Med", "Lancet", "journal"),
        ("Smith J, Doe AB", "Doe AB, Smith J", "first author"),
        ("380", "381", "volume"),
        ("245-50", "345-50", "pages"),
        ("prevention", "promotion", "title"),
        ("PMID: 1", "PMID: 7", "PMID"),
        ("NEJMoa1", "NEJMoa7", "DOI"),
    ],
)
def test_a_wrong_field_is_named(right, wrong, field):
    assert [one.field for one in differences(listed(STYLES[0].replace(right, wrong)), reference_of(RECORD))] == [field]


@pytest.mark.parametrize("style", range(len(STYLES)))
def test_a_wrong_year_author_or_word_of_the_title_is_seen_in_each_style(style):
    for right, wrong, field in (("2019", "2017", "year"), ("Smith", "Young", "first author")):
        changed = listed(STYLES[style].replace(right, wrong))
        assert [one.field for one in differences(changed, reference_of(RECORD))] == [field]
    changed = listed(re.sub("(?i)fever", "stroke", STYLES[style]))
    assert "title" in [one.field for one in differences(changed, reference_of(RECORD))]


@pytest.mark.parametrize(
    ("text", "volume", "pages"),
    [
        ("Lancet. 2022;:9-17.", "", "9-17"),
        ("Lancet. 2022;9–17.", "", "9-17"),
        ("Lancet. 2022 Jan 5;13(1).", "13", ""),
        ("Lancet 2022; 68, pages 913-963.", "68", "913-963"),
        ("Lancet. 2022;13 Suppl 2:s47-54.", "13", "s47-54"),
        ("Lancet, vol. 13, no. 4, 2022, pp. 2009–12.", "13", "2009-12"),
        ("Lancet, 13(4).", "13", ""),
        ("Lancet, 902–918.", "", "902-918"),
        ("Lancet 13, no. 4 (2022): 245.", "13", "245"),
        ("Lancet 13, 245–250 (2022).", "13", "245-250"),
    ],
)
def test_volume_and_pages_of_each_style(text, volume, pages):
    place = place_in(text)
    assert (place.journal, place.volume, place.pages) == ("Lancet", volume, pages)
    assert place.years[:1] in ((2022,), ())


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("J. M. Raser and E. K. O′Shea. Noise.", ["Raser", "O′Shea"]),
        ("Jansen van Vuren, P., & Gerhard de Verdier, M. (2007). ELISA.", ["Jansen van Vuren", "Gerhard de Verdier"]),
        ("Adi L. Tarca, Xue-wen Chen, and Jan van den Berg. Machines.", ["Tarca", "Chen", "van den Berg"]),
        ("Kaufmann, G., M. David, and G. D. Borasio. 1986. Phages.", ["Kaufmann", "David", "Borasio"]),
        ("Tanaka H, Ito S. Sulfonylureas and falls in adults. JAMA. 2021.", ["Tanaka", "Ito"]),
        ("Tanaka H. Aspirin, statins and falls. JAMA. 2021.", ["Tanaka"]),
        ("Owen CR,, Bell JF. 1964. Bacteria.", ["Owen", "Bell"]),
        ("Effects of aspirin on fever. Lancet. 2001.", []),
    ],
)  # fmt: skip
def test_authors_of_each_order_of_names(text, families):
    assert [author.family for author in cited_authors(text)[0]] == families


def test_tags_in_a_records_title_and_letters_of_pages_are_no_difference():
    record = Snippet("x", "Loss of CO<sub>2</sub> and <i>TP53</i> in fever", "", None, {**FACTS, "pages": "mcae033"})
    text = "Smith J. Loss of CO2 and TP53 in fever. N Engl J Med. 2019;380:mcae033."
    assert differences(listed(text), reference_of(record)) == []


def test_a_longer_title_is_not_the_shorter_one_of_a_record():
    text = STYLES[0].replace(TITLE, "Aspirin in the prevention of fever: a randomised trial and its costs in Wales")
    assert [one.field for one in differences(listed(text), reference_of(RECORD))] == ["title"]


def test_a_journal_is_not_taken_for_the_subtitle_that_is_left_out():
    record = Snippet("x", "Aspirin and fever in older adults: a population study", "", None, FACTS)
    text = "Smith J, Doe AB. Aspirin and fever in older adults. JAMA. 2019;380:245-50."
    assert [(one.field, one.manuscript) for one in differences(listed(text), reference_of(record))] == [
        ("journal", "JAMA")
    ]


@pytest.mark.parametrize(
    ("short", "long", "same"),
    [
        ("Proc Natl Acad Sci U S A", PROCEEDINGS, True),
        ("PNAS", PROCEEDINGS, True),
        ("J Bone Joint Surg Am", "The Journal of bone and joint surgery. American volume", True),
        ("BMJ", "BMJ (Clinical research ed.)", True),
        ("Lancet", "The Lancet. Oncology", False),
        ("Arch Intern Med", "Annals of internal medicine", False),
        ("Circ Res", "Circulation", False),
    ],
)  # fmt: skip
def test_names_of_journals(short, long, same):
    assert same_journal(short, long) is same


class Stored:
    """An index of snippets that finds all for any words, and by equal fields."""

    def __init__(self, *snippets):
        self._snippets = {snippet.id: snippet for snippet in snippets}

    def search(self, probes):
        from biorag.types import AnyOf, ScoredDoc

        def meets(snippet, condition):
            if isinstance(condition, AnyOf):
                return any(all(meets(snippet, part) for part in one) for one in condition.alternatives)
            value = snippet.pmid if condition.field == "pmid" else snippet.metadata.get(condition.field)
            value = value.lower() if isinstance(value, str) else value
            return value in condition.value if condition.op == "in" else value == condition.value

        held = self._snippets.values()
        return [
            [ScoredDoc(one.id, 1.0) for one in held if all(meets(one, part) for part in probe.where)]
            for probe in probes
        ]

    def fetch(self, ids):
        return {id: self._snippets[id] for id in ids}


@pytest.mark.parametrize(
    ("text", "pmid", "foreign"),
    [
        (STYLES[0], 1, []),
        (STYLES[1], 1, []),
        (STYLES[0].replace("PMID: 1", "PMID: 2"), 1, ["PMID"]),
        ("Roe P. Aspirin in the treatment of headache in boys. Lancet. 2018;1:2. PMID: 2.", None, ["PMID"]),
        ("Roe P. Aspirin in the treatment of headache in boys. Lancet. 2018;1:2.", None, []),
        ("Smith J. Statins in the cure of fever: an open trial. NEJM 2019. doi: 10.1056/NEJMoa1", 1, []),
        ("Smith J. Statins in the cure of fever: an open trial. NEJM 2018. doi: 10.1056/NEJMoa1", None, ["DOI"]),
        ("Smith J, Doe AB. Aspirin in the prevention of fewer: a randomised trial. BMJ 2019.", 1, []),
    ],
)
def test_which_record_is_a_references_own(text, pmid, foreign):
    (match,) = matched([listed(text)], Stored(RECORD, OTHER), 4)
    assert (match.record.pmid if match.record else None) == pmid
    assert [one.field for one in match.foreign] == foreign


@pytest.mark.parametrize("year", [2015, 2019])
def test_of_two_records_of_one_title_the_one_that_agrees_otherwise_is_it(year):
    earlier = Snippet("pubmed_3", RECORD.title, "An abstract.", 3, {**FACTS, "year": 2015})
    text = f"Smith J, Doe AB. {TITLE}. N Engl J Med. {year}."
    for records in ((RECORD, earlier), (earlier, RECORD)):
        (match,) = matched([listed(text)], Stored(*records), 4)
        assert match.record.date[0] == year


BEGUN_FACTS = {**FACTS, "year": 2011, "pages": "3-9", "retracted": True}
BEGUN = Snippet("x_9", f"{TITLE} of boys", "An abstract.", 9, BEGUN_FACTS)


@pytest.mark.parametrize(
    ("text", "records", "pmid", "fields"),
    [
        (f"{TITLE}. NEJM. 2015;3(380):40-9.", (BEGUN, RECORD), 1, ["year", "volume", "pages"]),
        (f"{TITLE}. NEJM. 2011;380(3):245-50.", (BEGUN, RECORD), 1, ["year"]),
        (f"{TITLE}. NEJM. 2011;380:3-9.", (RECORD, BEGUN), 9, []),  # its subtitle is left out
        (f"{TITLE}. NEJM. 2011;12:40-9.", (BEGUN,), None, []),
        (f"{TITLE}. NEJM. 2015;12:40-9.", (BEGUN,), None, []),
        (f"{TITLE} of men. NEJM. 2019;12:40-9.", (RECORD,), None, []),
        (f"{TITLE}. NEJM. 2011;3(380):380-9.", (BEGUN,), None, []),
        (f"{TITLE}. NEJM. 2011;9(3):40-9.", (RECORD,), 1, ["year", "volume", "pages"]),
    ],
)
def test_of_titles_that_begin_alike_the_one_is_it_that_agrees_and_no_difference_is_silent(text, records, pmid, fields):
    (match,) = matched([listed(text)], Stored(*records), 4)
    assert (match.record.pmid if match.record else None, [one.field for one in match.differences]) == (pmid, fields)


def test_fields_that_a_record_lacks_are_not_compared():
    bare = Snippet("x", RECORD.title, "An abstract.", None, {"authors": AUTHORS})
    (match,) = matched([listed(STYLES[1])], Stored(bare), 4)
    assert (match.differences, match.uncompared) == ((), ("year", "journal", "volume", "pages"))


@pytest.mark.parametrize("title", [RECORD.title, f"RETRACTED: {RECORD.title}", f"{RECORD.title} [Retracted article]"])
def test_a_record_that_says_that_its_paper_was_retracted_is_not_hidden_by_another(title):
    earlier = Snippet("x_1", RECORD.title, "An abstract.", None, FACTS)
    retracted = Snippet("x_2", title, "An abstract.", None, {**FACTS, "retracted": True, "volume": ""})
    for records in ((earlier, retracted), (retracted, earlier)):
        (match,) = matched([listed(STYLES[1])], Stored(*records), 4)
        assert any(snippet.retracted for snippet in match.snippets)
        assert match.differences == ()
    (match,) = matched([listed(STYLES[0])], Stored(RECORD, retracted), 4)  # its PMID is of the other
    assert [snippet.id for snippet in match.snippets] == ["pubmed_1", "x_2"]


WRAPPED = [
    (
        "Smith, J. A., Doe, B. C., & Roe, D. E.",
        "(2019). Aspirin in the prevention of fever. The Lancet, 380(3),",
        "245–250.",
    ),
    (
        "Van der Berg, C. & Doe, A.",
        "(2018) Ibuprofen in the relief of pain. Lancet, 12, pp.",
        "2001. https://doi.org/10.1000/x",
    ),
    ("World Health Organization.", "(2020). Report on the fevers of the world. Geneva:", "WHO, 2020."),
]


@pytest.mark.parametrize(
    ("start", "continued", "end"),
    [
        ("{n}. ", "", "\n"), ("[{n}] ", "    ", "\n"), ("{n}\t", "", "\n\n"), ("- ", "  ", "\n"), ("", "    ", "\n"),
        ("", "", "\n\n"), ("", "", "\n"), ("(iii) ", "", "\n\n"),
    ],
)  # fmt: skip
def test_a_list_whose_items_run_over_lines_is_parted_where_they_begin(start, continued, end):
    text = end.join(start.format(n=n) + f"\n{continued}".join(lines) for n, lines in enumerate(WRAPPED, 1))
    references = items([Paragraph(part, n, "") for n, part in enumerate(text.split("\n\n"))])
    assert [one.key for one in references] == ["1", "2", "3"]
    for reference, lines in zip(references, WRAPPED, strict=True):
        assert reference.text.removeprefix("(iii) ") == " ".join(lines)


def test_of_repeated_numbers_one_start_of_a_list_is_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(listing, "_are_numbered", lambda paragraphs: tried.append(len(paragraphs)))
    parted([Paragraph("1. A title of 2001.", n, "") for n in range(500)])
    assert tried == [1]


def test_a_list_without_heading_is_what_is_numbered_at_the_end():
    paragraphs = [
        Paragraph(text, n, "") for n, text in enumerate(["Text [1].", "1. A B. One. 2001.", "2. C D. Two. 2002."])
    ]
    body, references = parted(paragraphs)
    assert ([one.text for one in body], [one.key for one in items(references)]) == (["Text [1]."], ["1", "2"])
