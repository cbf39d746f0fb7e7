"""Chat completions and responses, by OpenAI's own client against `biorag serve` in a process of its own."""

from __future__ import annotations

import json
import re

import pytest

from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.errors import ServiceError
from biorag.faces.server.openai.messages import text_of
from biorag.types import CheckedSentence, Question, Verdict
from biorag.utils.files import json_text
from tests.faces.server.conftest import QUESTION, client_of, serving

openai = pytest.importorskip("openai", reason="the package openai is not installed")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


ANSWERED = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def client(demo_home):
    """OpenAI's client of a server with the indexes `default` and `inhalers`."""
    with serving(demo_home, name=None) as served:
        yield openai.OpenAI(base_url=f"{served.url}v1", api_key="unused", max_retries=0)


def timeless(document):
    return {**json.loads(json_text(document)), "timings_ms": {}}


def test_a_completion_is_the_answer_and_ends_with_its_references(client, session):
    completion = client.chat.completions.create(model="biorag/default", messages=MESSAGES)
    answer = session.ask(QUESTION)
    assert completion.choices[0].message.content == (
        f"{answer}\n\nReferences:\n[1] Isoniazid neuropathy and pyridoxine. demo_044"
    )
    assert (completion.choices[0].finish_reason, completion.model) == ("stop", "default")
    assert timeless(completion.model_extra["biorag"]) == timeless(answer.to_json())


def test_a_reference_is_the_whole_citation(client):
    asked = [{"role": "user", "content": "Does hoarseness occur with inhalers?"}]
    text = client.chat.completions.create(model="inhalers", messages=asked).choices[0].message.content
    title = "Dry mouth and hoarseness with steroid inhalers: a survey"
    assert text.splitlines()[-1] == f"[1] Haas M. {title}. Airway Letters 2016. doi:10.5555/inhaler.3"


def test_a_stream_gives_the_same_text(client):
    whole = client.chat.completions.create(model="biorag", messages=MESSAGES).choices[0].message
    chunks = list(client.chat.completions.create(model="", messages=MESSAGES, stream=True))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.content
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    options = {"include_usage": True}
    *_, last = client.chat.completions.create(model="", messages=MESSAGES, stream=True, stream_options=options)
    assert (last.choices, last.usage.total_tokens) == ([], 0) and all(chunk.usage is None for chunk in chunks)


def test_a_response_is_the_same_answer_whole_and_in_events(client, session):
    text = text_of(session.ask(QUESTION))
    response = client.responses.create(model="default", input=QUESTION, instructions="Be brief.")
    assert (response.output_text, response.status, response.error) == (text, "completed", None)
    assert timeless(response.model_extra["biorag"]) == timeless(session.ask(QUESTION).to_json())
    events = list(client.responses.create(model="default", input=ANSWERED, stream=True))
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event.sequence_number for event in events] == list(range(9))
    assert "".join(event.delta for event in events if event.type.endswith(".delta")) == text
    assert events[-1].response.output_text == text
    with client.responses.stream(model="default", input=QUESTION) as stream:
        assert stream.get_final_response().output_text == text


def test_a_response_follows_the_output_of_the_last(client):
    first = client.responses.create(model="default", input=QUESTION)
    turns = [*ANSWERED, *(item.model_dump() for item in first.output), {"type": "reasoning", "id": "r", "summary": []}]
    follow = client.responses.create(model="default", input=[*turns, {"role": "user", "content": "and in pregnancy?"}])
    assert re.search("isoniazid.*pregnancy", follow.model_extra["biorag"]["question"])
    with pytest.raises(openai.BadRequestError, match="send the earlier messages in 'input'") as refused:
        client.responses.create(model="default", input="and in pregnancy?", previous_response_id=first.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "unsupported_parameter")


def test_a_model_is_an_index(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["default", "inhalers"]
    assert all(model.created > 1_700_000_000 for model in models)
    assert client.models.retrieve("biorag/inhalers").id == "inhalers"
    asked = client.chat.completions.create(model="inhalers", messages=MESSAGES)
    assert asked.model == "inhalers"
    assert {hit["id"].partition("_")[0] for hit in asked.model_extra["biorag"]["hits"]} == {"inhaler"}
    calls = (
        lambda: client.models.retrieve("pubmed"),
        lambda: client.chat.completions.create(model="pubmed", messages=MESSAGES, stream=True),
        lambda: client.responses.create(model="biorag/pubmed", input=QUESTION),
    )
    for call in calls:
        with pytest.raises(openai.NotFoundError, match="choose one of default, inhalers") as missing:
            call()
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


def test_a_fault_is_an_error_of_the_client(client):
    with pytest.raises(openai.BadRequestError, match="role 'user' asks anything"):
        client.chat.completions.create(model="default", messages=[{"role": "system", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError, match="messages"):
        client.chat.completions.create(model="default", messages=[])
    with pytest.raises(openai.UnprocessableEntityError, match="input"):
        client.responses.create(model="default", input="")


def test_a_fault_while_streaming_is_raised_by_the_client(session, monkeypatch):
    def failing(*_, **__):
        raise ServiceError("the generator failed: start it again")

    monkeypatch.setattr(Session, "ask", failing)
    with client_of(session) as client:
        for path, body in (("chat/completions", {"messages": MESSAGES}), ("responses", {"input": QUESTION})):
            events = client.post(f"/v1/{path}", json={**body, "stream": True}).text.split("\n\n")
            error = json.loads(events[-2].partition("data: ")[2])["error"]
            assert (error["message"], error["type"]) == ("the generator failed: start it again", "server_error")


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


def test_a_follow_up_is_asked_of_the_questions_before_it(session, monkeypatch):
    rewritten = []
    original = Session.standalone

    def kept(self, *turn):
        rewritten.append(turn)
        return original(self, *turn)

    monkeypatch.setattr(Session, "standalone", kept)
    with client_of(session) as client:
        said = [
            ("user", QUESTION),
            ("assistant", "Isoniazid interferes with vitamin B6.\n\nReferences:\n[1] A."),
            ("user", "and in pregnancy?"),
            ("assistant", "I found nothing that answers this."),
            ("user", "in children, then?"),
        ]
        messages = [{"role": role, "content": content} for role, content in said]
        reply = client.post("/v1/chat/completions", json={"messages": messages}).json()
    first, second = rewritten
    assert first == ("and in pregnancy?", QUESTION, "Isoniazid interferes with vitamin B6.")
    assert (second[0], second[2]) == ("in children, then?", "I found nothing that answers this.")
    assert {"isoniazid", "pregnancy"} <= set(re.findall(r"\w+", second[1].lower()))
    assert {"isoniazid", "children"} <= set(re.findall(r"\w+", reply["biorag"]["question"].lower()))
