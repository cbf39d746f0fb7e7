"""An OpenAI-compatible server: a scripted one for faults, and llama_cpp.server itself."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from biorag.errors import ServiceError
from biorag.generators.server import ServerGenerator
from biorag.prompts.grammar import growing_text
from biorag.prompts.template import load_template, schema_for
from biorag.types import Generation, GenerationRequest, Prompt, Question, Sampling, Snippet
from biorag.utils.network import Server
from tests.loopback import completion

CHOICE = Question("q", "Which drug lowers fever?", {"A": "insulin", "B": "aspirin"})
OPEN = Question("q", "Which drug lowers fever?")
SCHEMA = schema_for(CHOICE, 2)
PROMPT = Prompt("You are careful.", "Which drug lowers fever?")
MESSAGES = [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}]
REPLY = '{"step_by_step_thinking": "It is aspirin.", "relevant_context": "YES", "answer_choice": "B"}'


def failing(call) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)
    return caught.value


def ask(generator, cap=10, schema=SCHEMA, **changes):
    return generator.generate(GenerationRequest(PROMPT, schema, cap, **changes))


def counted(content, *tokens, finish="stop"):
    usage = dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True))
    return 200, {**completion(content, finish), "usage": usage}


def test_a_reply_is_asked_for_under_the_schema_of_the_first_model_and_returned_as_it_is(server):
    server.will((200, {"data": [{"id": "llama-8b"}, {"id": "other"}]}), counted(REPLY, 31, 12))
    generator, seen = server.generator(model=None), []
    assert generator.name == "llama-8b"
    reply = generator.generate(GenerationRequest(PROMPT, SCHEMA, 77), seen.append)
    assert reply == Generation(REPLY, False, False, 31, 12)
    assert seen == [REPLY]
    requests = [(asked.method, asked.path) for asked in server.asked]
    assert requests == [("GET", "/v1/models"), ("POST", "/v1/chat/completions")]
    assert server.bodies[0] == {
        "model": "llama-8b",
        "messages": MESSAGES,
        "max_tokens": 77,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}},
    }


# --- faults ---


def test_a_passing_fault_is_tried_again(server):
    server.will((429, b"busy"), (503, b"busy"), REPLY)
    assert ask(server.generator()).text == REPLY
    assert server.bodies == server.bodies[:1] * 3


@pytest.mark.parametrize(
    "body", [[], {"choices": []}, {"choices": [{"message": {"content": 5}}]}, {"error": "no such model"}]
)
def test_json_that_is_no_completion_is_an_error(server, body):
    server.will((200, body))
    assert server.url in str(failing(lambda: ask(server.generator())))


def test_a_reply_far_beyond_its_cap_is_cut_there(server):
    """A megabyte where ten tokens were asked for: what a reader sees of it is closed as a cut reply is."""
    server.will('{"answer": "' + "a " * 500_000 + '"}')
    generation = ask(server.generator(), schema=schema_for(OPEN, 0))
    assert generation.capped
    assert len(generation.text) < 10_000
    assert json.loads(generation.text)["answer"].startswith("a a a")


@pytest.mark.slow
def test_each_of_several_requests_has_the_whole_time_of_a_reply(server):
    """A server that answers one at a time begins the last when it is done with the others."""
    turn = threading.Lock()

    def rule(body):
        with turn:
            time.sleep(0.6)
        return REPLY

    server.rule = rule
    generator = server.generator(timeout=1.5, retries=0, at_a_time=4)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)).text, range(4)))
    assert replies == [REPLY] * 4
    assert server.most == 4


# --- servers that know other ways to ask for JSON ---

# llama_cpp.server has 500 for every request that it cannot validate.
LLAMA_CPP = {"error": {"message": "validation error: 'loc': ('body', 'response_format', 'type')", "type": "internal"}}


@pytest.mark.parametrize("refusal", [(400, b"unknown response_format"), (501, b"no"), (500, LLAMA_CPP)])
@pytest.mark.parametrize("refused", [1, 2])
def test_a_refused_format_is_asked_for_in_another_way_from_then_on(server, refusal, refused):
    """As a schema, then as a JSON object, then without a format, as a free reply always is."""
    server.will(*[refusal] * refused, REPLY, REPLY, "Aspirin.", REPLY)
    generator = server.generator()
    replies = [ask(generator), ask(generator), ask(generator, constrained=False), ask(generator)]
    assert [reply.text for reply in replies] == [REPLY, REPLY, "Aspirin.", REPLY]
    last = {"type": "json_object", "schema": SCHEMA} if refused == 1 else None
    formats = [body.get("response_format") for body in server.bodies]
    assert [form["type"] for form in formats[:refused]] == ["json_schema", "json_object"][:refused]
    assert formats[refused:] == [last, last, None, last]


def test_several_threads_find_the_servers_way_together(server):
    """Each request that was begun in the refused way is asked again; none is asked in a way that was not tried."""

    def rule(body):
        time.sleep(0.02)
        if body["response_format"]["type"] == "json_schema":
            return 400, {"error": "unknown response_format"}
        return json.dumps({"step_by_step_thinking": body["messages"][1]["content"], "answer_choice": "A"})

    server.rule = rule
    generator = server.generator()
    prompts = [Prompt("You are careful.", f"question {n}") for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda prompt: generator.generate(GenerationRequest(prompt, SCHEMA, 10)), prompts))
    assert [json.loads(reply.text)["step_by_step_thinking"] for reply in replies] == [p.user for p in prompts]
    assert 2 <= server.most <= 8
    before = len(server.asked)
    generator.generate(GenerationRequest(PROMPT, SCHEMA, 10))
    assert len(server.asked) == before + 1, "the refused way is not tried again"


# --- free replies ---


def test_a_free_reply_is_asked_for_without_a_format_and_returned_as_it_is(server):
    """The cap is that of the request, and what it cuts is not completed by a second request."""
    server.will("Aspirin lowers fever.", (200, completion('{"step_by_step_thinking": "It', "length")), REPLY)
    generator = server.generator()
    free = GenerationRequest(PROMPT, SCHEMA, 77, constrained=False)
    assert generator.generate(free) == Generation("Aspirin lowers fever.", False)
    sampled = generator.generate(replace(free, sampling=Sampling(0.7, 2)))
    assert sampled == Generation('{"step_by_step_thinking": "It', True)
    plain = {"model": "m", "messages": MESSAGES, "max_tokens": 77}
    assert server.bodies == [{**plain, "temperature": 0}, {**plain, "temperature": 0.7, "seed": 2}]
    generator.generate(GenerationRequest(PROMPT, SCHEMA, 77))
    assert server.bodies[2]["response_format"]["type"] == "json_schema", "as before"


# --- capped replies ---

REST = '{"relevant_context": "NOT", "answer_choice": "B"}'
CAPPED = [
    # (as the server sends it, the text it holds)
    ('{"step_by_step_thinking": "It is asp', "It is asp"),
    ('{\n  "step_by_step_thinking": "It is asp', "It is asp"),
    ('{"step_by_step_thinking": "Line one\\nsaid \\"yes\\" \\u03b2', 'Line one\nsaid "yes" β'),
    ('{"step_by_step_thinking": "cut escape \\u03', "cut escape "),
    ('{"step_by_step_thinking": "a backslash \\\\', "a backslash \\"),
    ('{"step_by_step_thinking": "Done.", "relevant_con', "Done."),
    ('{"step_by_step_thinking": "', ""),
    ('{"step_by', ""),
]


@pytest.mark.parametrize(("partial", "text"), CAPPED)
def test_the_rest_of_a_capped_reply_is_asked_for_and_joined(server, partial, text):
    server.will(counted(partial, 31, 9, finish="length"), counted(REST, 50, 8))
    generation = ask(server.generator(), 7)
    assert generation[1:] == (True, False, 81, 17), "the tokens of both requests"
    fields = {"step_by_step_thinking": text, "relevant_context": "NOT", "answer_choice": "B"}
    assert list(json.loads(generation.text).items()) == list(fields.items())
    second = server.bodies[1]
    assert second["messages"][:3] == [*MESSAGES, {"role": "assistant", "content": partial}]
    assert second["response_format"]["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"relevant_context": {"enum": ["YES", "NOT"]}, "answer_choice": {"enum": ["A", "B"]}},
        "required": ["relevant_context", "answer_choice"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("rest", ["no JSON", "[1]"])
def test_a_rest_that_cannot_be_read_leaves_the_partial_reply(server, rest):
    server.will((200, completion('{"step_by_step_thinking": "It', "length")), rest)
    assert ask(server.generator(), 7) == Generation('{"step_by_step_thinking": "It', True)


# --- scores ---


def scored(*pairs):
    top = [{"token": token, "logprob": logprob} for token, logprob in pairs]
    first = {"token": "B", "logprob": -0.5, "top_logprobs": top}
    return 200, completion("B", "length", logprobs={"content": [first]})


def test_scores_are_the_servers_log_probabilities(server):
    server.will(scored(("B", -0.5), (" A", -1.5), ("{", -2.0), ("A", -9.0)))
    assert server.generator().score(PROMPT, ["A", "B", "C"]).logprobs == {"A": -1.5, "B": -0.5}, "C is not listed"
    sampling = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    assert server.bodies == [{"model": "m", "messages": MESSAGES, **sampling}]


@pytest.mark.parametrize(
    "body",
    [
        completion("B"),
        completion("B", logprobs={"tokens": ["B"], "top_logprobs": [{"B": -0.5}]}),
        completion("B", logprobs={"content": [{"top_logprobs": [{"token": "B", "logprob": "-0.5"}]}]}),
        completion("B", logprobs={"content": [{"top_logprobs": {"B": -0.5}}]}),
        {},
    ],
)
def test_a_server_without_log_probabilities_points_to_the_other_way(server, body):
    server.will((200, body))
    assert "--answer generate" in str(failing(lambda: server.generator().score(PROMPT, ["A", "B"])))


# --- the real thing ---


@pytest.fixture(scope="module")
def llama_server(tmp_path_factory):
    """`python -m llama_cpp.server` with the starter GGUF on a free loopback port; its URL."""
    pytest.importorskip("llama_cpp.server.app", reason="needs llama-cpp-python[server]")
    from biorag.models.finding import find_gguf

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": find_gguf("starter"), "host": "127.0.0.1", "port": port, "n_ctx": 2048, "logits_all": True}
    options |= {"n_threads": 1, "n_threads_batch": 1}
    command = [sys.executable, "-m", "llama_cpp.server", *(f"--{name}={value}" for name, value in options.items())]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 240
        while True:
            assert process.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"the server did not start: {log.read_text()[-2000:]}"
            try:
                if httpx.get(f"{url}/v1/models", timeout=2).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.long
def test_a_real_server_gives_replies_of_the_schema_and_log_probabilities(llama_server):
    generator = ServerGenerator(Server(llama_server, 240.0, 1), None, 2048)
    assert generator.name
    snippets = [Snippet("s1", "Aspirin", "Aspirin lowers fever."), Snippet("s2", "", "Insulin moves glucose.")]
    prompt = load_template("choice").render(CHOICE, snippets)
    for cap in (3, 60):
        generation = generator.generate(GenerationRequest(prompt, SCHEMA, cap))
        fields = json.loads(generation.text)
        assert list(fields) == list(SCHEMA["properties"])
        assert fields["answer_choice"] in ("A", "B")
        assert growing_text(generation.text) == fields["step_by_step_thinking"]
        assert generation.capped or cap > 3
    scores = generator.score(PROMPT, ["A", "B", "C"]).logprobs
    listed = [score for score in scores.values() if score > -100.0]
    assert sum(math.exp(score) for score in listed) <= 1.001
    # Its tokens are counted by the server itself too: our estimate is not below them.
    used = httpx.post(f"{llama_server}/extras/tokenize/count", json={"input": prompt.system + prompt.user}).json()
    assert generator.count_tokens(prompt) >= used["count"]
