"""The check of claims and answers, by hand: what each rule accepts and refuses."""

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from biorag.answering.guards.checker import (
    Checker,
    _checked,
    asserted,
    is_polar,
    leading_answer,
    marked_sentences,
)
from biorag.answering.guards.evidence import CONTRADICTS_FROM, SUPPORTS_FROM, SnippetVerdict
from biorag.answering.guards.quotes import find_quote
from biorag.corpus.sentences import sentences
from biorag.corpus.sources import demo_file
from biorag.prompts.parse import CitedNumber
from biorag.types import LABELS, Hit, Snippet, Verdict
from biorag.utils.text import comparable
from tests.corpus.test_sentences import ANY_TEXT

TEXT = (
    "Metformin lowers blood glucose in adults with diabetes. TNF and IL-6 rose. "
    "Aspirin inhibits COX-1 in platelets at 81 mg/day."
)
TEXTS = [
    (
        "Isoniazid and pyridoxine",
        "Isoniazid inhibits pyridoxine phosphokinase and depletes vitamin B6. Pyridoxine 25 mg daily prevents "
        "peripheral neuropathy in adults who take isoniazid. Of 412 patients, 41 developed neuropathy without "
        "pyridoxine.",
    ),
    (
        "Zinc for the common cold",
        "Zinc lozenges were ineffective in preventing colds in children. Zinc did not shorten the duration of colds. "
        "We hypothesized that zinc reduces viral replication.",
    ),
    (
        "",
        "Metformin lowers blood glucose in adults with type 2 diabetes. Metformin is associated with a lower risk of "
        "lactic acidosis than phenformin. Metformin may reduce the risk of cancer.",
    ),
    (
        "",
        "Aspirin was associated with fewer heart attacks in men (relative risk 0.56, P < 0.001). There is no evidence "
        "that aspirin prevents stroke in healthy women. IL-6 activates STAT3 in hepatocytes.",
    ),
    (
        "Does vitamin D prevent falls?",
        "The aim of this study was to determine whether vitamin D prevents falls in the elderly. Falls were fewer with "
        "800 IU than with placebo. The warfarin dose ranged from 2.5 to 5 mg.",
    ),
]
HITS = [Hit(n, Snippet(f"s{n}", title, content, 100 + n), 1.0) for n, (title, content) in enumerate(TEXTS, 1)]


def verdict(claim: str, text: str = TEXT, question: str = "") -> Verdict:
    return Checker().check_claim(claim, [Snippet("s", "", text)], question).verdict


def check(text: str, question: str = "", *cited: tuple[int, str]):
    return Checker().check_answer(text, HITS, question, [CitedNumber(*item) for item in cited])


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("Metformin lowers blood glucose.", "supported"),
        ("Metformin does not lower blood glucose.", "contradicted"),
        ("Metformin raises blood glucose.", "contradicted"),
        ("IL-6 lowers blood glucose.", "unsupported"),
        ("Metformin lowers blood glucose in children with diabetes.", "unsupported"),
        ("COX-1 inhibits aspirin in platelets.", "unsupported"),
        ("COX-1 is inhibited by aspirin in platelets.", "supported"),
        ("Aspirin is inhibited by COX-1 in platelets.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 810 mg/day.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 81 g/day.", "unsupported"),
        ("Aspirin inhibits COX-1 in platelets at 0.081 g per day.", "supported"),
        ("Only metformin lowers blood glucose.", "unsupported"),
        ("No, metformin lowers blood glucose.", "supported"),
        ("Bananas are yellow.", "unsupported"),
        ("", "unsupported"),
    ],
)
def test_a_claim_against_one_snippet(claim, expected):
    assert verdict(claim) == expected


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        ("The drug failed to reduce pain.", "The drug reduced pain.", "contradicted"),
        ("The drug reduced pain.", "The drug failed to reduce pain.", "contradicted"),
        ("The drug did not reduce pain.", "The drug failed to reduce pain.", "supported"),
        ("Relapse occurred without treatment.", "Relapse occurred with treatment.", "contradicted"),
        ("Neither zinc nor iron reduced pain.", "Zinc and iron reduced pain.", "contradicted"),
        ("Neither zinc nor iron reduced pain.", "Neither zinc nor iron reduced pain in adults.", "supported"),
        ("Bleeding was absent.", "There was no bleeding.", "supported"),
        ("The test was nonsignificant.", "The test was not significant.", "supported"),
        ("The test was significant.", "The test was non-significant.", "contradicted"),
        (
            "The drug not only reduced pain but improved sleep.",
            "The drug reduced pain and improved sleep.",
            "supported",
        ),
        ("Serum TNF was elevated in sepsis.", "Serum TNF was increased in sepsis.", "supported"),
        ("Serum TNF was reduced in sepsis.", "Serum TNF was increased in sepsis.", "contradicted"),
        ("BRAF inhibits MEK.", "BRAF activates MEK.", "contradicted"),
        ("Smoking is a benefit for survival.", "Smoking is a risk for survival.", "contradicted"),
        ("Statins reduce the risk of stroke.", "Statins may reduce the risk of stroke.", "unsupported"),
        ("Statins may reduce the risk of stroke.", "Statins may reduce the risk of stroke.", "supported"),
        (
            "Statins reduce the risk of stroke.",
            "We hypothesized that statins reduce the risk of stroke.",
            "unsupported",
        ),
        (
            "Statins reduce the risk of stroke.",
            "To determine whether statins reduce the risk of stroke.",
            "unsupported",
        ),
        ("Statins reduce the risk of stroke.", "Do statins reduce the risk of stroke?", "unsupported"),
        ("Follow-up lasted 12 weeks.", "Follow-up lasted 12 months.", "unsupported"),
        ("Follow-up lasted 14 days.", "Follow-up lasted 2 weeks.", "supported"),
        ("Follow-up lasted two weeks.", "Follow-up lasted 2 weeks.", "supported"),
        ("Of 30 women, 12 relapsed.", "Of 12 women, 30 relapsed.", "unsupported"),
        ("Doses of 20 to 30 mg were given.", "Doses of 20-30 mg were given.", "supported"),
        ("The p53 mutation causes cancer in mice.", "The p53 mutation causes cancer in humans.", "unsupported"),
        ("EGFR mutations are linked to KRAS mutations.", "KRAS mutations are linked to EGFR mutations.", "supported"),
        ("Nivolumab is a PD-1 blocker.", "Ipilimumab is a CTLA-4 blocker. Nivolumab is a PD-1 blocker.", "supported"),
        (
            "Ipilimumab is a PD-1 blocker.",
            "Ipilimumab is a CTLA-4 blocker. Nivolumab is a PD-1 blocker.",
            "unsupported",
        ),
    ],
)
def test_negation_direction_modality_numbers_and_roles(claim, evidence, expected):
    assert verdict(claim, evidence) == expected


def test_words_of_the_question_are_no_evidence():
    question = "How does metformin treat diabetes in adults?"
    assert verdict("Metformin treats diabetes in adults by magic.", TEXT, question) is Verdict.UNSUPPORTED
    assert verdict("Metformin lowers blood glucose.", TEXT, question) is Verdict.SUPPORTED
    text = "Metformin is an old drug. It lowers blood glucose."
    assert verdict("Metformin lowers blood glucose.", text, "What does metformin do?") is Verdict.SUPPORTED


def test_evidence_stands_verbatim_and_names_its_snippet():
    checked = Checker().check_claim("Zinc did not shorten colds.", [hit.snippet for hit in HITS])
    (span,) = checked.evidence
    assert (span.n, span.id, span.pmid, span.verdict) == (2, "s2", 102, Verdict.SUPPORTED)
    assert span.quote == "Zinc did not shorten the duration of colds."


CHEATS = [
    "Pyridoxine 250 mg daily prevents peripheral neuropathy in adults who take isoniazid [1].",
    "Isoniazid is inhibited by pyridoxine phosphokinase [1].",
    "Of 41 patients, 412 developed neuropathy without pyridoxine [1].",
    "Isoniazid depletes zinc [1].",
    "Zinc shortens the duration of colds [2].",
    "Metformin does not lower blood glucose [3].",
    "Metformin lowers blood glucose by 30% [3].",
    "Metformin is associated with a higher risk of lactic acidosis than phenformin [3].",
    "Metformin lowers blood glucose in mice with type 2 diabetes [3].",
    "Aspirin was associated with fewer heart attacks in men (relative risk 5.6) [4].",
    "IL-6 inhibits STAT3 in hepatocytes [4].",
    "Falls were fewer with placebo than with 800 IU [5].",
]


@pytest.mark.parametrize("text", CHEATS)
def test_a_cheating_sentence_is_not_supported_and_its_citation_falls(text):
    checked = check(text)
    assert [item.verdict for item in checked.sentences] != [Verdict.SUPPORTED]
    assert checked.citations == ()
    assert len(checked.notes) == 1


@pytest.mark.parametrize(
    ("text", "question", "n", "quote"),
    [
        ("Zinc was effective in preventing colds in children.", "", 2, "effective in preventing colds in children"),
        ("Zinc prevented colds in children.", "", 2, "[in]effective in preventing colds in children"),
        ("41 of 2 patients developed neuropathy.", "", 1, "41[2] patients, 41 developed neuropathy"),
        ("The warfarin dose ranged from 5 to 5 mg.", "", 5, "5 to 5 mg"),
        ("Zinc did not shorten colds.", "", 2, "Zinc ... shorten the duration of colds"),
        ("Zinc did not shorten the duration of colds.", "", 2, "Zinc lozenges were ineffective"),
    ],
)
def test_a_quote_must_stand_there_whole_and_support_the_sentence(text, question, n, quote):
    checked = check(text, question, (n, quote))
    assert len(checked.notes) == 1
    assert checked.citations == ()


def test_one_true_sentence_among_six_lends_the_others_nothing():
    true = "Pyridoxine 25 mg daily prevents peripheral neuropathy in adults who take isoniazid."
    rest = " It doubles life expectancy. It cures cancer. It prevents dementia. It makes you tall. It heals bones."
    checked = check(true + rest, "", (1, ""))
    assert [item.verdict.value for item in checked.sentences] == ["supported"] + ["unsupported"] * 5
    assert [citation.n for citation in checked.citations] == [1]


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        ("Yes, aspirin was associated with fewer heart attacks in men [4].", "Does aspirin help men?", "supported"),
        ("Yes.", "Does zinc shorten the duration of colds?", "contradicted"),
        ("No.", "Does zinc shorten the duration of colds?", "supported"),
        ("Yes.", "Does metformin lower blood glucose?", "supported"),
        ("Yes.", "Does vitamin D prevent falls in the elderly?", "unsupported"),
        ("No, metformin lowers blood glucose.", "Does metformin lower blood glucose?", "contradicted"),
        ("No, metformin lowers blood glucose.", "Is metformin an antibiotic?", "supported"),
        ("Yes, aspirin prevents stroke in healthy women.", "Does aspirin prevent stroke in women?", "contradicted"),
    ],
)
def test_yes_and_no_are_held_against_what_they_assert(text, question, expected):
    (sentence,) = check(text, question).sentences
    assert sentence.verdict == expected


def test_marks_belong_to_their_sentences():
    hits = [Hit(1, Snippet("a", "", TEXT, 11), 1.0), Hit(2, Snippet("b", "", "Bananas are yellow.", 12), 0.5)]
    checked = Checker().check_answer(
        "Metformin lowers blood glucose [2]. Bananas are yellow. [2]", hits, "What does metformin do?", [CitedNumber(7)]
    )
    assert [(item.verdict, item.citations) for item in checked.sentences] == [
        (Verdict.SUPPORTED, (1,)),
        (Verdict.SUPPORTED, (2,)),
    ]
    assert [(citation.n, citation.quote) for citation in checked.citations] == [
        (1, "Metformin lowers blood glucose in adults with diabetes."),
        (2, "Bananas are yellow."),
    ]
    assert checked.notes == (
        "citation [2] was dropped: its sentence is not supported by snippet b",
        "citation [7] was dropped: there is no document of that number",
    )


@pytest.mark.parametrize(
    ("quote", "text", "expected"),
    [
        ("effective in colds", "It was ineffective in colds.", None),
        ("effective in colds", "It was non-effective in colds.", None),
        ("2 patients", "412 patients", None),
        ("5 mg", "2.5 mg", None),
        ("IL", "IL-6 rose", None),
        ("“it rose”", "and it rose.", "it rose"),
        ("It rose ... fast", "It rose very fast", None),
        ("in Sjo\u0308gren's disease", "Dry eyes in Sj\u00f6gren's disease.", "in Sj\u00f6gren's disease"),
        ("no e\ufb00ect seen", "There was No effect\nseen.", "No effect\nseen"),
        ("hypertension fell", "The hyper\u00adten\u200bsion fell.", "hyper\u00adten\u200bsion fell"),
        ("IL-6 fell", "Then IL\u20116 fell.", "IL\u20116 fell"),
        ("10\u2079 cells", "of 10\u2079 cells", "10\u2079 cells"),
        ("51/2 hours", "after 5\u00bd hours", None),
        ("", "It rose", None),
    ],
)
def test_quotes_begin_and_end_between_words_and_numbers(quote, text, expected):
    span = find_quote(quote, text)
    assert (span and text[slice(*span)]) == expected


@given(ANY_TEXT, st.integers(0, 200), st.integers(1, 60))
def test_what_stands_in_a_text_is_found_there_however_it_is_composed(text, start, length):
    quote = text[start : start + length]
    for written in (quote, unicodedata.normalize("NFD", quote), unicodedata.normalize("NFC", quote), quote.upper()):
        if span := find_quote(written, text):
            found = text[slice(*span)]
            assert (
                comparable(found).split() == comparable(written.strip().strip("\"'“”‘’«»").strip().rstrip(".")).split()
            )


def test_what_an_answer_asserts():
    assert asserted("Does aspirin prevent colds?", "yes") == "aspirin prevent colds."
    assert asserted("Is the protein Papilin secreted?", "no") == "the protein Papilin not secreted."
    assert asserted("Which vitamin is given?", "pyridoxine") == "Which vitamin is given pyridoxine"
    assert is_polar("Is it?") and not is_polar("Which vitamin is given?")
    assert leading_answer("No, it is not. Never.") == ("no", "Never.")
    assert leading_answer("Nothing helps.") == ("", "Nothing helps.")


@given(ANY_TEXT)
@example("Do not use. Whether it works?")
@example("It did not: 1) help 2) harm.")
@example("Fever. Fever. Fever. Fever. Fever Fever ")
def test_a_sentence_of_the_snippet_is_supported_by_it(text):
    snippet = Snippet("s", "", text)
    for sentence in sentences(text):
        checked = Checker().check_claim(sentence, [snippet])
        if any(letter.isalpha() for letter in sentence) and checked.verdict is not Verdict.SUPPORTED:
            assert not has_content(sentence), sentence


def has_content(sentence: str) -> bool:
    from biorag.answering.guards.analysis import analyse

    return bool(analyse(sentence).content)


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=3), ANY_TEXT, ANY_TEXT, st.integers(-1, 4), ANY_TEXT)
def test_nothing_raises_and_what_holds_stands_in_its_snippet(texts, answer, question, n, quote):
    hits = [Hit(rank, Snippet(f"s{rank}", *text), 1.0) for rank, text in enumerate(texts, 1)]
    checked = Checker().check_answer(answer, hits, question, [CitedNumber(n, quote)])
    for citation in checked.citations:
        assert citation.quote in hits[citation.n - 1].snippet.contents
    for sentence in checked.sentences:
        assert (sentence.verdict is Verdict.SUPPORTED) == bool(sentence.citations)
        for span in sentence.evidence:
            assert span.quote in hits[span.n - 1].snippet.contents


class Fixed:
    """A judge that gives every pair the same probabilities, or those of its evidence, and keeps the pairs."""

    def __init__(self, supports: float, contradicts: float = 0.0, of: Mapping[str, tuple[float, float]] = {}) -> None:
        self.default, self.of = (supports, contradicts), of
        self.pairs: list[tuple[str, str]] = []
        self.calls = 0

    sha256 = ""

    def judge(self, pairs):
        self.pairs += pairs
        self.calls += 1
        both = [self.of.get(evidence, self.default) for evidence, _ in pairs]
        return np.array([[*two, 1 - sum(two)] for two in both], np.float32)


FREE = "Metformin gets the glucose of adults into a reasonable range, step by step."
ELSEWHERE = "The drug brings down sugar levels."
LOWERED = "Glucose is lowered by metformin."


@pytest.mark.parametrize(
    ("claim", "probabilities", "expected", "by_judge"),
    [
        ("Metformin lowers blood glucose.", (0.9, 0.0), "supported", True),
        ("Metformin lowers blood glucose.", (0.4, 0.1), "unsupported", True),
        ("Metformin lowers blood glucose in adults with diabetes.", (0.0, 0.9), "supported", False),  # verbatim
        ("Metformin lowers blood glucose.", (0.1, 0.9), "contradicted", True),
        (FREE, (SUPPORTS_FROM + 0.01, 0.1), "supported", True),
        (FREE, (SUPPORTS_FROM - 0.01, 0.1), "unsure", True),
        (FREE, (0.1, CONTRADICTS_FROM + 0.01), "contradicted", True),
        (FREE, (0.1, CONTRADICTS_FROM - 0.01), "unsure", True),
        (FREE, (0.4, 0.1), "unsupported", True),
        (ELSEWHERE, (0.9, 0.0), "supported", True),  # in no word in common
        # The rules' own: a contradiction, and a veto of a support, though not of a contradiction.
        ("Metformin does not lower blood glucose.", (0.99, 0.0), "contradicted", False),
        ("Metformin lowers blood glucose in children.", (0.99, 0.0), "unsure", True),
        ("Metformin lowers blood glucose in children.", (0.0, 0.99), "contradicted", True),
    ],
)
def test_a_judge_decides_what_no_rule_does(claim, probabilities, expected, by_judge):
    judge = Fixed(*probabilities)
    checked = Checker(judge).check_claim(claim, [Snippet("s", "", TEXT)])
    assert checked.verdict == expected
    assert bool(checked.probability) == by_judge, "what the rules decide has no probability"
    if by_judge:
        assert [checked.probability[label] for label in LABELS[:2]] == pytest.approx(probabilities)
    assert {text for _, text in judge.pairs} == ({claim} if by_judge else set())
    assert [span.verdict for span in checked.evidence] == [expected] * (expected in ("supported", "contradicted"))


def test_a_judge_is_asked_once_and_its_surest_verdict_decides():
    texts = ["Metformin lowers glucose.", "Metformin lowers glucose in adults.", "Sugar was unchanged."]
    snippets = [Snippet(f"s{n}", "", text) for n, text in enumerate(texts)]
    judge = Fixed(0.0, of=dict(zip(texts, [(0.75, 0.05), (0.95, 0.0), (0.0, 0.8)], strict=True)))
    checked = Checker(judge).check_claim(LOWERED, snippets)
    assert (checked.verdict, checked.citations) == (Verdict.SUPPORTED, (2, 1))
    assert [span.n for span in checked.evidence] == [2, 1]
    assert checked.probability["supports"] == pytest.approx(0.95)
    assert judge.calls == 1
    judge.of = dict(zip(texts, [(0.75, 0.05), (0.1, 0.0), (0.0, 0.99)], strict=True))
    checked = Checker(judge).check_claim(LOWERED, snippets)
    assert (checked.verdict, checked.citations) == (Verdict.CONTRADICTED, ())
    assert [span.quote for span in checked.evidence] == texts[2:]
    judge.of, judge.default = {}, (0.3, 0.2)
    assert Checker(judge).check_claim(LOWERED, snippets).probability["neither"] == pytest.approx(0.5)


def test_a_no_has_the_probabilities_of_the_denial():
    question = "Does metformin lower blood glucose in adults with diabetes?"
    probabilities = [
        Checker(Fixed(0.75))
        .check_answer(answer, [Hit(1, Snippet("s", "", TEXT), 1.0)], question)
        .sentences[0]
        .probability
        for answer in ("Yes.", "No.")
    ]
    assert probabilities == [
        {"supports": 0.75, "contradicts": 0.0, "neither": 0.25},
        {"supports": 0.0, "contradicts": 0.75, "neither": 0.25},
    ]


# --- replies that say what no snippet says; `python -m scripts.cheating_replies` sends them through the command ---

NOT_SEEN = {"e18", "e29", "e40"}  # two sentences glued, a hedge after what it governs; docs/answers.md says so
SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_what_no_snippet_says_is_not_supported():
    rows = map(json.loads, demo_file("snippets.jsonl").read_text().splitlines())
    snippets = {row["id"]: Snippet(row["id"], row["title"], row["content"]) for row in rows}
    files = sorted(SCRIPTS.glob("cheating_replies*.jsonl"))
    cases = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    supported = {
        case["id"]
        for case in cases
        if case["kind"] not in ("wrong number", "wrong document")
        for false in case["false"]
        for sentence, _ in marked_sentences(false)
        if Checker().check_claim(sentence, [snippets[case["snippet"]]], case["question"]).citations
    }
    assert len(cases) == 180
    assert supported == NOT_SEEN


@pytest.mark.parametrize(("contradiction", "expected"), [(0.85, "supported"), (0.95, "contradicted")])
def test_a_contradiction_must_be_covered_better_than_a_support(contradiction, expected):
    verdicts = [SnippetVerdict(Verdict.SUPPORTED, 0.8, "x"), SnippetVerdict(Verdict.CONTRADICTED, contradiction, "y")]
    assert _checked("A claim.", [hit.snippet for hit in HITS[:2]], verdicts).verdict == expected


def test_the_marked_snippet_is_cited_where_several_support():
    hits = [Hit(n, Snippet(f"s{n}", "", TEXT, n), 1.0) for n in (1, 2)]
    for mark, cited in (("", (1,)), (" [2]", (2,))):
        (sentence,) = Checker().check_answer(f"Metformin lowers blood glucose{mark}.", hits, "").sentences
        assert sentence.citations == cited
