"""The check of claims and answers: by the words of the evidence, and by readers of known words."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from biorag.answering.guards.checker import (
    Checker,
    marked_sentences,
)
from biorag.answering.guards.quotes import find_quote
from biorag.answering.guards.stated import compared
from biorag.answering.sections import is_evidence, labelled_sentences
from biorag.corpus.sources import demo_file
from biorag.types import Hit, Snippet, Stance, Trust, Verdict
from biorag.utils.text import comparable
from tests.corpus.test_sentences import ANY_TEXT
from tests.fakes import ScriptedReader

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


def check(text: str, question: str = "", *cited: int):
    return Checker().check_answer(text, HITS, question, cited)


@pytest.mark.parametrize(
    ("claim", "verdict", "basis", "difference"),
    [
        ("Of 412 patients, 41 developed neuropathy without the pyridoxine.", "supported", "quote", ""),
        ("Of 412 patients, 14 developed neuropathy without pyridoxine.", "unsupported", "quote", "41, not 14"),
        ("Zinc did shorten the duration of colds.", "contradicted", "quote", "this with “not”"),
        ("IL-10 activates STAT3 in hepatocytes.", "unsupported", "quote", "IL-6, not IL-10"),
        ("Zinc shortens the common cold.", "unsupported", "none", ""),
    ],
)
def test_what_is_established_of_a_claim_by_words(claim, verdict, basis, difference):
    """The table of docs/answers.md."""
    checked = Checker().check_claim(claim, [hit.snippet for hit in HITS])
    assert (checked.verdict, checked.basis, checked.difference) == (verdict, basis, difference)


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        ("Yes, aspirin was associated with fewer heart attacks in men [4].", "Does aspirin help men?", "supported"),
        ("Yes.", "Does zinc shorten the duration of colds?", "contradicted"),
        ("No.", "Does zinc shorten the duration of colds?", "supported"),
        ("Yes, it helps.", "Does zinc shorten the duration of colds?", "contradicted"),
        ("Yes.", "Does metformin lower blood glucose in adults with type 2 diabetes?", "supported"),
        ("Yes.", "Does vitamin D prevent falls in the elderly?", "unsupported"),
        ("No, it is an old drug.", "Is metformin an antibiotic?", "unsupported"),
    ],
)
def test_yes_and_no_are_held_against_what_they_assert(text, question, expected):
    (sentence,) = check(text, question).sentences
    assert sentence.verdict == expected


def test_marks_belong_to_their_sentences():
    hits = [Hit(1, Snippet("a", "", TEXT, 11), 1.0), Hit(2, Snippet("b", "", "Bananas are yellow.", 12), 0.5)]
    checked = Checker().check_answer("TNF and IL-6 rose [2]. Bananas are yellow. [2]", hits, "What rose?", [7])
    assert [(item.verdict, item.citations) for item in checked.sentences] == [
        (Verdict.SUPPORTED, (1,)),
        (Verdict.SUPPORTED, (2,)),
    ]
    assert [(citation.n, citation.quote) for citation in checked.citations] == [
        (1, "TNF and IL-6 rose."),
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


@given(ANY_TEXT)
@example("Do not use. Whether it works?")
@example("It did not: 1) help 2) harm.")
@example("Fever. Fever. Fever. Fever. Fever Fever ")
def test_a_sentence_of_the_snippet_is_supported_by_it(text):
    for row in labelled_sentences(text):
        if is_evidence(row, row.text) and compared(row.text, row.text).relation:
            assert Checker().check_claim(row.text, [Snippet("s", "", text)]).verdict is Verdict.SUPPORTED, row.text


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=3), ANY_TEXT, ANY_TEXT, st.integers(-1, 4))
def test_nothing_raises_and_what_holds_stands_in_its_snippet(texts, answer, question, n):
    hits = [Hit(rank, Snippet(f"s{rank}", *text), 1.0) for rank, text in enumerate(texts, 1)]
    checked = Checker().check_answer(answer, hits, question, [n])
    for citation in checked.citations:
        assert citation.quote in hits[citation.n - 1].snippet.contents
    for sentence in checked.sentences:
        assert (sentence.verdict is Verdict.SUPPORTED) == bool(sentence.citations)
        for span in sentence.evidence:
            assert span.quote in hits[span.n - 1].snippet.contents


# --- readers ---

GOLD = {  # of a claim in other words, the sentence that decides it, and how
    "The drug brings down sugar levels.": ("Metformin lowers blood glucose in adults.", "supported"),
    "The drug often causes low sugar.": ("It seldom causes hypoglycaemia.", "contradicted"),
    "The drug extends life.": ("", "unsupported"),
}
ABSTRACT = (
    "BACKGROUND: Metformin is an old drug of the French lilac. METHODS: We treated 40 adults. RESULTS: Metformin "
    "lowers blood glucose in adults. It seldom causes hypoglycaemia. CONCLUSIONS: The drug is cheap."
)
OTHER = "Low sugar levels of people in the trial were brought down by nothing at all."


def oracle(query: str, window: str) -> tuple[float, float]:
    sentence, verdict = GOLD[query]
    decides = 0.95 if sentence and sentence in window else 0.02
    return (decides, 0.01) if verdict == "supported" else (0.01, decides)


@pytest.mark.parametrize("claim", GOLD)
def test_a_reader_that_is_always_right_gives_right_verdicts_with_the_deciding_sentence(claim):
    reader = ScriptedReader(oracle)
    snippets = [Snippet("o", "", OTHER), Snippet("s", "The drug extends life.", ABSTRACT, 7)]
    checked = Checker(reader).check_claim(claim, snippets)
    sentence, verdict = GOLD[claim]
    assert (checked.verdict, checked.basis) == (verdict, "reader")
    assert [(span.n, span.pmid, span.quote, span.verdict) for span in checked.evidence] == (
        [(2, 7, sentence, verdict)] if sentence else []
    )
    assert checked.citations == ((2,) if verdict == "supported" else ())
    assert max(checked.probability.values()) == pytest.approx({"unsupported": 0.97}.get(verdict, 0.95), abs=0.03)
    assert {query for query, _ in reader.read_windows} == {claim}
    assert not any("lilac" in window for _, windows in reader.read_windows for window in windows), "background"


CLAIM = next(iter(GOLD))


def by(supports: float, contradicts: float, *, claim=CLAIM, text=TEXT, **fields):
    """Return what a reader that says the same of everything makes of a claim, and how often it was asked."""
    reader = ScriptedReader(lambda query, window: (supports, contradicts), **fields)
    return Checker(reader).check_claim(claim, [Snippet("s", "", text)]), len(reader.read_windows)


STRICT = Trust(supports=0.9, contradicts=0.8)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        *(((0.91, 0.05), "supported"), ((0.89, 0.05), "unsure"), ((0.05, 0.81), "contradicted")),
        *(((0.05, 0.79), "unsure"), ((0.4, 0.1), "unsupported"), ((0.1, 0.4), "unsupported")),
    ],
)
def test_a_reader_counts_from_where_it_is_trusted(probabilities, expected):
    checked, _ = by(*probabilities, trust=STRICT)
    assert checked.verdict == expected
    assert list(checked.probability.values()) == pytest.approx([*probabilities, 1 - sum(probabilities)])
    assert [span.verdict for span in checked.evidence] == [expected] * (expected in ("supported", "contradicted"))


@pytest.mark.parametrize(
    ("probabilities", "expected", "difference"),
    [
        ((0.9, 0.0), "supported", ""),
        ((0.0, 0.9), "unsupported", "Metformin, not Heparin"),
        ((0.1, 0.1), "unsupported", "Metformin, not Heparin"),
    ],
)
def test_another_name_may_be_another_word_for_it_where_a_reader_says_so(probabilities, expected, difference):
    checked, _ = by(*probabilities, claim="Heparin lowers blood glucose in adults with diabetes.")
    assert (checked.verdict, checked.difference) == (expected, difference)


def test_a_reader_that_is_not_trusted_only_leans():
    reader = ScriptedReader(lambda query, window: (0.2, 0.7), trust=Trust(2, 2, 2))
    snippets = [Snippet("s", "", "Sugar rose.")]
    silent, leaning = (Checker(reader).stances(CLAIM, snippets, leaning)[0] for leaning in (False, True))
    assert silent == Stance(Verdict.UNSUPPORTED, 0.0, "") and len(reader.read_windows) == 1
    assert leaning == Stance(Verdict.UNSURE, pytest.approx(0.7), "Sugar rose.", Verdict.CONTRADICTED)
    assert Checker(reader).check_claim(CLAIM, snippets).verdict is Verdict.UNSUPPORTED


@pytest.mark.parametrize(("contradicts", "verdict"), [(0.8, "supported"), (0.84, "supported"), (0.86, "contradicted")])
def test_a_contradiction_outweighs_a_support_only_if_it_is_surer_by_a_margin(contradicts, verdict):
    said = {"Sugar fell.": (0.75, 0.0), "Sugar rose.": (0.0, contradicts)}
    checker = Checker(ScriptedReader(lambda query, window: said[window]))
    assert checker.check_claim(CLAIM, [Snippet(text, "", text) for text in said]).verdict == verdict


def test_the_surest_snippet_decides_and_probabilities_are_its():
    texts = ["Sugar fell.", "Sugar fell in adults.", "Sugar was unchanged."]
    snippets = [Snippet(f"s{n}", "", text) for n, text in enumerate(texts)]
    said = dict(zip(texts, [(0.75, 0.05), (0.95, 0.0), (0.0, 0.8)], strict=True))
    checker = Checker(ScriptedReader(lambda query, window: said[window]))
    checked = checker.check_claim(CLAIM, snippets)
    assert (checked.verdict, checked.citations) == (Verdict.SUPPORTED, (2, 1))
    assert [span.n for span in checked.evidence] == [2, 1]
    assert checked.probability["supports"] == pytest.approx(0.95)
    said |= {texts[1]: (0.1, 0.0), texts[2]: (0.0, 0.99)}
    checked = checker.check_claim(CLAIM, snippets)
    assert (checked.verdict, checked.citations) == (Verdict.CONTRADICTED, ())
    assert [span.quote for span in checked.evidence] == texts[2:]


def test_what_is_put_together_is_quoted_by_its_best_sentence():
    """What the sentences say together may be likelier than what each says alone."""
    reader = ScriptedReader(lambda query, window: (0.3 + 0.3 * ("lowers" in window) + len(window) / 1000, 0))
    checked = Checker(reader).check_claim(CLAIM, [Snippet("s", "", ABSTRACT)])
    assert checked.verdict is Verdict.SUPPORTED
    assert [span.quote for span in checked.evidence] == ["Metformin lowers blood glucose in adults."]


@pytest.mark.parametrize("reads_questions", [False, True])
def test_a_no_has_the_probabilities_of_the_denial(reads_questions):
    reader = ScriptedReader(lambda query, window: (0.75, 0.0), reads_questions=reads_questions)
    question, hits = "Does the drug lower sugar?", [Hit(1, Snippet("s", "", TEXT), 1.0)]
    yes, no = (Checker(reader).check_answer(answer, hits, question).sentences[0] for answer in ("Yes.", "No."))
    assert (yes.verdict, yes.probability) == ("supported", {"supports": 0.75, "contradicts": 0.0, "neither": 0.25})
    assert (no.verdict, no.probability) == ("contradicted", {"supports": 0.0, "contradicts": 0.75, "neither": 0.25})
    assert {query for query, _ in reader.read_windows} == {question if reads_questions else "the drug lower sugar."}


# --- replies that say what no snippet says; `python -m scripts.cheating_replies` sends them through the command ---

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
        if Checker().check_claim(sentence, [snippets[case["snippet"]]]).citations
    }
    assert len(cases) == 180
    assert supported == set()


def test_the_marked_snippet_is_cited_where_several_support():
    hits = [Hit(n, Snippet(f"s{n}", "", TEXT, n), 1.0) for n in (1, 2)]
    for mark, cited in (("", (1,)), (" [2]", (2,))):
        (sentence,) = Checker().check_answer(f"TNF and IL-6 rose{mark}.", hits, "").sentences
        assert sentence.citations == cited
