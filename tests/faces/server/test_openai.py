"""Chat completions, by OpenAI's own client against `biorag serve` in a process of its own."""

from __future__ import annotations

import json
import re

import pytest

from biorag.api.results import AnswerResult
from biorag.faces.server.openai import text_of
from biorag.types import CheckedSentence, Question, Verdict
from biorag.utils.files import json_text
from tests.faces.server.conftest import QUESTION, client_of, serving

openai = pytest.importorskip("openai", reason="the package openai is not installed")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def served(demo_home):
    with serving(demo_home) as process:
        yield process


@pytest.fixture(scope="module")
def client(served):
    return openai.OpenAI(base_url=f"{served.url}v1", api_key="unused", max_retries=0)


def test_a_completion_is_the_answer(client, session):
    completion = client.chat.completions.create(model="biorag/default", messages=MESSAGES)
    answer = session.ask(QUESTION)
    message = completion.choices[0].message
    assert message.content == str(answer)
    assert completion.choices[0].finish_reason == "stop"
    document, expected = completion.model_extra["biorag"], json.loads(json_text(answer.to_json()))
    assert {**document, "timings_ms": {}} == {**expected, "timings_ms": {}}


def test_a_stream_gives_the_same_text(client, session):
    whole = client.chat.completions.create(model="x", messages=MESSAGES).choices[0].message
    chunks = list(client.chat.completions.create(model="x", messages=MESSAGES, stream=True))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    text = "".join(delta.content or "" for delta in deltas)
    assert text == whole.content
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"


def test_a_fault_is_an_error_of_the_client(client):
    with pytest.raises(openai.BadRequestError, match="role 'user' asks anything"):
        client.chat.completions.create(model="x", messages=[{"role": "system", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError, match="messages"):
        client.chat.completions.create(model="x", messages=[])
    assert [model.id for model in client.models.list()] == ["biorag/default"]


def test_parts_of_a_message_are_its_text(session):
    with client_of(session) as client:
        content = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "x"}}]
        reply = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]})
        assert reply.json()["biorag"]["question"] == QUESTION


def test_an_answer_without_sentences_says_so_and_nothing_acts_on_a_terminal():
    texts = {
        "Nothing.": AnswerResult(Question("q", "?"), text="Nothing."),
        "no evidence was found": AnswerResult(Question("q", "?"), notes=("no evidence was found",)),
        "The evidence gives no answer.": AnswerResult(Question("q", "?")),
    }
    for text, answer in texts.items():
        assert text_of(answer) == text
    sentence = CheckedSentence("A \x1b[31mred\x1b[0m claim.", Verdict.SUPPORTED, (1,))
    assert "\x1b" not in text_of(AnswerResult(Question("q", "?"), sentences=(sentence,)))


def test_a_follow_up_is_asked_of_the_question_before_it(session):
    with client_of(session) as client:
        said = [
            ("user", QUESTION),
            ("assistant", "Isoniazid interferes with vitamin B6."),
            ("user", "and in pregnancy?"),
        ]
        messages = [{"role": role, "content": content} for role, content in said]
        reply = client.post("/v1/chat/completions", json={"messages": messages}).json()
    assert re.fullmatch(r"and in pregnancy\? \(pyridoxine .*isoniazid\)", reply["biorag"]["question"])
