"""Marked quotes, forms, and what the page keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.api.word_matching import WordMatch
from biorag.errors import MissingError, UsageError
from biorag.faces.server.answer_view import AnswerView, Quote, answer_view, passages
from biorag.faces.server.bodies import ask_body
from biorag.faces.server.pages import KEPT, LastKept, rendered, sectioned
from biorag.types import Answer, CheckedSentence, EvidenceSpan, Hit, Question, Snippet, Verdict

CONTENT = "Zinc shortens colds. Iron does not. Copper was not tried."


def shown(*sentences: CheckedSentence, **parts: object) -> AnswerView:
    hit = Hit(1, Snippet("s", "Metals", CONTENT), 1.0)
    text = " ".join(sentence.text for sentence in sentences)
    answer = Answer(Question("q", "Is it?"), text=text, sentences=sentences, hits=(hit,))
    return answer_view("Is it?", answer, "id", **parts)


def test_a_title_that_is_all_of_the_text_is_shown_once():
    answer = Answer(
        Question("q", "Is it?"),
        text="",
        hits=(Hit(1, Snippet("s", "Zinc shortens colds", "Zinc shortens colds."), 1.0),),
    )
    (hit,) = answer_view("Is it?", answer, "id").hits
    assert hit.content == []
    assert "".join(word.text for passage in hit.title for word in passage.words) == "Zinc shortens colds."


def supported(text: str, quote: str) -> CheckedSentence:
    return CheckedSentence(text, Verdict.SUPPORTED, (1,), (span(quote, Verdict.SUPPORTED),), basis="quote")


def span(quote: str, verdict: Verdict) -> EvidenceSpan:
    return EvidenceSpan(1, "s", None, quote, verdict)


def test_a_sentence_has_its_verdict_and_its_mark_on_the_page():
    probability = {"supports": 0.55, "contradicts": 0.05, "neither": 0.4}
    unsure = CheckedSentence("It may.", Verdict.UNSURE, probability=probability)
    page = rendered("answer.html", view=shown(unsure, CheckedSentence("It is.", Verdict.SUPPORTED, (1,))))
    mark = '<strong class="mark-unsure"> [not sure: 55 % supported]</strong>'
    assert f'<span id="s1" class="unsure">It may.</span>{mark}' in page
    assert '<span id="s2" class="supported">It is.</span>\n' in page
    assert "1 of 2 sentences stated by [1], 1 not sure" in page
    assert "The verdict of each sentence" not in page, "no sentence has a quote"


def test_each_sentence_has_its_verdict_with_its_quote_which_citations_light():
    zinc, iron = "Zinc shortens colds.", "Iron does not."
    against = CheckedSentence(
        "Iron helps.", Verdict.CONTRADICTED, (), (span(iron, Verdict.CONTRADICTED),), basis="reader"
    )
    tin = CheckedSentence("Tin is dear.", Verdict.UNSUPPORTED)
    page = rendered("answer.html", view=shown(supported("Colds pass sooner with zinc.", zinc), against, tin))
    checks = page[page.index('<details class="checks" open>') : page.index("</ol>")]
    for mark, text in (
        ('supported">stated<', f"“{zinc}”"),
        ('contradicted">contradicted<', f"“{iron}”"),
        ('unsupported">not stated in these words<', "No sentence of"),
    ):
        assert text in checks[checks.index(f'<strong class="mark-{mark}') :]
    assert """data-lights="#hit-1, #s1, #hit-1 [data-by~='1']">[1]</a>""" in page
    assert (
        f'<mark data-by="1" data-lights="#s1">{zinc}</mark> <mark data-by="2" data-lights="#s2">{iron}</mark> C' in page
    )
    assert "The verdict of each" not in rendered("answer.html", view=shown(supported(zinc, zinc))), "it is the quote"


def test_words_that_match_the_question_are_graded_inside_and_outside_of_quotes():
    metals, zinc, iron = (0, 6), (8, 12), (29, 33)
    matches = [
        WordMatch(metals, "metal", 0.8, 4),
        WordMatch(zinc, "iron", 0.5, 1),
        WordMatch(iron, "iron", 1.0, 5),
    ]
    view = shown(supported("Zinc shortens colds.", "Zinc shortens colds."), matches=[matches])
    page = rendered("answer.html", view=view)
    assert '[1] <span class="m4" title="metal: 0.80">Metals</span></h3>' in page
    assert '<span class="m1" title="iron: 0.50">Zinc</span> shortens colds.</mark>' in page
    assert '</mark> <span class="m5" title="iron: 1.00">Iron</span> does not.' in page
    assert view.hits[0].near == {("iron", "iron"): 1, ("metal", "metals"): 0.8, ("iron", "zinc"): 0.5}
    assert "Words by cosine: iron – iron 1.00, metal – metals 0.80, iron – zinc 0.50<" in page


def test_labels_of_a_structured_abstract_stand_out():
    text = "BACKGROUND: A <b>. MATERIALS AND METHODS: DNA: two. Not all were SEEN: three."
    assert sectioned(text) == (
        ' <b class="section">BACKGROUND:</b> A &lt;b&gt;. <b class="section">MATERIALS AND METHODS:</b> DNA: two. '
        "Not all were SEEN: three."
    )


@given(
    st.text(alphabet="ab ", max_size=30),
    st.lists(st.text(alphabet="ab ", min_size=1, max_size=6), max_size=4),
    st.lists(st.integers(0, 34), max_size=8, unique=True),
)
def test_passages_are_the_whole_text_and_each_match_in_it_is_a_word(text, quotes, bounds):
    ends = sorted(bounds)
    matches = [WordMatch(span, "a", 1.0, 5) for span in zip(ends[::2], ends[1::2], strict=False)]
    found = passages(text, [Quote(number, quote) for number, quote in enumerate(quotes, 1)], matches)
    assert "".join(word.text for passage in found for word in passage.words) == text
    marked = [word for passage in found for word in passage.words if word.mark]
    assert all(word.text == text[slice(*word.mark.span)] for word in marked)
    starts = [(text.find(quote), quote) for quote in quotes if quote in text]
    cuts = {end for start, quote in starts for end in (start, start + len(quote))}
    whole = [
        match
        for match in matches
        if match.span[1] <= len(text) and not any(match.span[0] < cut < match.span[1] for cut in cuts)
    ]
    assert [word.mark for word in marked] == whole
    assert {number for passage in found for number in passage.quoted_by} == {
        number for number, quote in enumerate(quotes, 1) if quote in text
    }


def test_only_the_last_are_kept():
    kept = LastKept[int]()
    names = [kept.keep(number) for number in range(KEPT + 1)]
    assert [kept.get(name) for name in names[1:]] == list(range(1, KEPT + 1))
    assert kept.get(names[2], take=True) == 2
    for name in (names[0], names[2], "x"):
        with pytest.raises(MissingError, match="no longer kept"):
            kept.get(name)


def test_a_form_is_the_body_of_the_api():
    fields = {"question": "Why?", "options": "A=x\n\nB = y=z ", "k": "7", "filter": "retracted", "answer_anyway": "1"}
    body = ask_body(fields)
    assert (body.options, body.k, body.filter, body.answer_anyway) == ({"A": "x", "B": "y=z"}, 7, ["retracted"], True)
    narrowed = ask_body({"question": "Why?", "since": "2015", "until": "2020", "type": "Review"})
    assert narrowed.filter == ["year>=2015", "year<=2020", 'type="Review"']
    for wrong, part in (
        ({"k": "x"}, "number of sources: give a whole number"),
        ({"options": "A"}, "'A'"),
        ({"options": "A=x\nA=y"}, "given twice"),
        ({}, "question"),
    ):
        with pytest.raises(UsageError, match=part):
            ask_body({**({"question": "Why?"} if wrong else {}), **wrong})
