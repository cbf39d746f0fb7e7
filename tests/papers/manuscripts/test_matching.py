"""References of each style, and records that are theirs or not, with the fields that differ."""

import pytest

from biorag.papers.manuscripts.listing import items, parted
from biorag.papers.manuscripts.manuscript import ListedReference, Paragraph
from biorag.papers.manuscripts.matching import differences, matched, same_journal
from biorag.references.reference import reference_of
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
]


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


def test_a_list_without_heading_is_what_is_numbered_at_the_end():
    paragraphs = [
        Paragraph(text, n, "") for n, text in enumerate(["Text [1].", "1. A B. One. 2001.", "2. C D. Two. 2002."])
    ]
    body, references = parted(paragraphs)
    assert ([one.text for one in body], [one.key for one in items(references)]) == (["Text [1]."], ["1", "2"])
