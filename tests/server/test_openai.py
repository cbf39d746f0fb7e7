"""Chat completions, by OpenAI's own client against `biorag serve` in a process of its own."""

from __future__ import annotations

import json

import pytest

from biorag.api.results import AnswerResult
from biorag.server.openai import cited_pieces
from biorag.types import Answer, CheckedSentence, Question, Verdict
from biorag.utils.files import json_text
from tests.server.conftest import QUESTION, client_of, serving

openai = pytest.importorskip("openai", reason="the package openai is not installed")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def served(demo_home):
    with serving(demo_home) as process:
        yield process


@pytest.fixture(scope="module")
def client(served):
    return openai.OpenAI(base_url=f"{served.url}v1", api_key="unused", max_retries=0)


def checked(text: str, annotations: list, numbers: set[int]) -> None:
    """Hold that annotations stand where they say, and name what the text names."""
    for note in annotations:
        cited = note["url_citation"]
        mark = text[cited["start_index"] : cited["end_index"]]
        assert (note["type"], mark[0], mark[-1]) == ("url_citation", "[", "]")
        assert {int(n) for n in mark[1:-1].split(", ")} <= numbers
    assert len(annotations) == len(numbers) or annotations


def test_a_completion_is_the_answer_with_its_citations(client, session):
    completion = client.chat.completions.create(model="biorag/default", messages=MESSAGES)
    answer = session.ask(QUESTION)
    message = completion.choices[0].message
    assert message.content == str(answer)
    assert completion.choices[0].finish_reason == "stop"
    notes = [note.model_dump() for note in message.annotations]
    checked(message.content, notes, {citation.n for citation in answer.citations})
    titles = {note["url_citation"]["title"] for note in notes}
    assert titles == {citation.title for citation in answer.citations}
    document, expected = completion.model_extra["biorag"], json.loads(json_text(answer.to_json()))
    assert {**document, "timings_ms": {}} == {**expected, "timings_ms": {}}


def test_a_stream_gives_the_same_text_and_the_same_places(client, session):
    whole = client.chat.completions.create(model="x", messages=MESSAGES).choices[0].message
    stream = client.chat.completions.create(
        model="x", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    text = "".join(delta.content or "" for delta in deltas)
    notes = [note for delta in deltas for note in (delta.model_extra or {}).get("annotations", [])]
    assert text == whole.content
    assert notes == [note.model_dump() for note in whole.annotations]
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == 0
    assert len(deltas) > 3, "it comes in pieces"


def test_a_fault_is_an_error_of_the_client(client):
    with pytest.raises(openai.BadRequestError, match="role 'user' asks anything"):
        client.chat.completions.create(model="x", messages=[{"role": "system", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError, match="messages"):
        client.chat.completions.create(model="x", messages=[])
    assert [model.id for model in client.models.list()] == ["biorag/default"]


def test_the_address_that_a_source_is_given_shows_it(client, served):
    import httpx

    message = client.chat.completions.create(model="x", messages=MESSAGES).choices[0].message
    url = message.annotations[0].url_citation.url
    assert url == f"{served.url}show?id=demo_044"
    assert "Isoniazid neuropathy" in httpx.get(url).text


def test_parts_of_a_message_are_its_text(session):
    with client_of(session) as client:
        content = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "x"}}]
        reply = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]})
        assert reply.json()["biorag"]["question"] == QUESTION


@pytest.mark.parametrize("choice", [None, "B"])
def test_pieces_are_the_marked_text_with_their_positions(choice):
    sentences = (
        CheckedSentence("Naïve β-cells rest.", Verdict.SUPPORTED, (1, 3)),
        CheckedSentence("They never wake.", Verdict.CONTRADICTED),
        CheckedSentence("Nobody knows 🧬.", Verdict.UNSUPPORTED, (2,)),
    )
    answer = AnswerResult(Question("q", "?"), text="x", choice=choice, sentences=sentences)
    pieces = list(cited_pieces(answer))
    text = "".join(piece.text for piece in pieces)
    assert text == str(answer)
    marks = [(n, text[piece.start : piece.end]) for piece in pieces for n in piece.citations]
    assert marks == [(1, "[1, 3]"), (3, "[1, 3]"), (2, "[2]")]


def test_an_answer_without_sentences_says_so():
    texts = {
        "Nothing.": Answer(Question("q", "?"), text="Nothing."),
        "no evidence was found": Answer(Question("q", "?"), notes=("no evidence was found",)),
        "The evidence gives no answer.": Answer(Question("q", "?")),
    }
    for text, answer in texts.items():
        assert "".join(piece.text for piece in cited_pieces(answer)) == text


def test_what_a_terminal_could_act_on_is_replaced_before_places_are_counted():
    sentence = CheckedSentence("A \x1b[31mred\x1b[0m claim.", Verdict.SUPPORTED, (1,))
    (piece,) = cited_pieces(Answer(Question("q", "?"), sentences=(sentence,)))
    assert "\x1b" not in piece.text
    assert piece.text[piece.start : piece.end] == "[1]"
