"""An OpenAI-compatible server: a scripted one for faults, and llama_cpp.server itself."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from biorag.benchmarks.mirage.run import each_answered
from biorag.errors import BioragError, ServiceError
from biorag.generators.server import ServerGenerator
from biorag.prompts.grammar import growing_text
from biorag.prompts.template import load_template, schema_for
from biorag.types import Generation, GenerationRequest, Prompt, Question, Snippet
from biorag.utils import retries
from biorag.utils.network import Server
from tests.loopback import Script, completion

CHOICE = Question("q", "Which drug lowers fever?", {"A": "insulin", "B": "aspirin"})
OPEN = Question("q", "Which drug lowers fever?")
SCHEMA = schema_for(CHOICE, 2)
PROMPT = Prompt("You are careful.", "Which drug lowers fever?")
MESSAGES = [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}]
REPLY = '{"step_by_step_thinking": "It is aspirin.", "relevant_context": "YES", "answer_choice": "B"}'


@pytest.fixture
def server():
    script = Script()
    yield script
    script.close()


def failing(call) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)
    return caught.value


# --- a server without faults ---


def test_a_reply_is_asked_for_under_the_schema_and_returned_as_it_is(server):
    server.will(REPLY)
    seen = []
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 77), seen.append) == Generation(REPLY, False)
    assert seen == [REPLY]
    assert len(server.asked) == 1
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.body == {
        "model": "m",
        "messages": MESSAGES,
        "max_tokens": 77,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}},
    }


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_base_url_may_or_may_not_end_in_v1(server, suffix):
    server.will(REPLY)
    ServerGenerator(Server(server.url + suffix, 5.0, 0), "m", 4096).generate(GenerationRequest(PROMPT, SCHEMA, 10))
    assert server.asked[0].path == "/v1/chat/completions"


def test_the_first_model_is_taken_where_none_is_named(server):
    server.will((200, {"data": [{"id": "llama-8b"}, {"id": "other"}]}), REPLY)
    generator = server.generator(model=None)
    assert generator.name == "llama-8b"
    generator.generate(GenerationRequest(PROMPT, SCHEMA, 10))
    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
    ]
    assert server.bodies[0]["model"] == "llama-8b"


@pytest.mark.parametrize("listed", [{"data": []}, {"data": None}, {}, [], {"data": [{}]}, "models", 5])
def test_a_server_without_models_is_told_how_to_name_one(server, listed):
    server.will((200, listed))
    assert "--llm-model" in str(failing(lambda: server.generator(model=None)))


@pytest.mark.parametrize(("key", "header"), [("s3cret", "Bearer s3cret"), (None, None), ("", None)])
def test_the_api_key_is_sent_as_a_bearer_token(server, key, header):
    server.will((200, {"data": [{"id": "m"}]}), REPLY)
    server.generator(model=None, key=key).generate(GenerationRequest(PROMPT, SCHEMA, 10))
    assert [asked.headers.get("Authorization") for asked in server.asked] == [header, header]


def test_tokens_are_estimated_from_above(server):
    generator = server.generator()
    assert generator.count_tokens(Prompt("", "")) > 0
    ascii_only, greek = Prompt("a" * 300, "b" * 300), Prompt("α" * 300, "β" * 300)
    assert generator.count_tokens(ascii_only) >= 600 / 4
    assert generator.count_tokens(greek) >= generator.count_tokens(ascii_only)
    assert generator.context_window == 4096


# --- faults ---


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_fault_is_tried_again(server, status):
    server.will((status, b"busy"), (status, b"busy"), REPLY)
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    assert len(server.asked) == 3
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]


@pytest.mark.parametrize("status", [429, 500])
def test_a_lasting_fault_ends_in_one_sentence(server, status):
    server.will(*[(status, b"overloaded")] * 20)
    error = failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)))
    assert len(server.asked) == 5
    for part in (server.url, str(status), "overloaded", "--llm"):
        assert part in str(error)


def test_retries_wait_longer_each_time(server, monkeypatch):
    waited = []
    monkeypatch.setattr(retries, "BACKOFF", 0.5)
    monkeypatch.setattr(retries.time, "sleep", waited.append)
    server.will(*[(503, b"")] * 20)
    failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)))
    assert all(most / 2 <= seconds <= most for seconds, most in zip(waited, [0.5, 1.0, 2.0, 4.0], strict=True))


@pytest.mark.parametrize("status", [401, 402, 403, 405, 425, 505])
def test_a_refusal_is_not_tried_again(server, status):
    server.will((status, b"invalid api key"))
    error = failing(lambda: server.generator(key="wrong-key").generate(GenerationRequest(PROMPT, SCHEMA, 10)))
    assert len(server.asked) == 1
    assert str(status) in str(error)
    assert "invalid api key" in str(error)
    assert "wrong-key" not in str(error)


@pytest.mark.parametrize("body", [b"garbage", b"", b"{", b"\xff\xfe", b"<html>proxy</html>"])
def test_an_answer_that_is_no_json_is_tried_again_and_then_fails(server, body):
    server.will((200, body), REPLY)
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    server.will(*[(200, body)] * 5)
    assert server.url in str(failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10))))


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "text",
        5,
        None,
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": "B"}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": ["B"]}}]},
        {"choices": "B"},
        {"error": "no such model"},
    ],
)
def test_json_that_is_no_completion_is_an_error(server, body):
    server.will((200, body))
    assert server.url in str(failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10))))


DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE = {
    "deep": DEEP,
    "deep in a field": b'{"choices": ' + DEEP + b"}",
    "NaN": b'{"choices": [{"message": {"content": "x"}}], "usage": NaN}',
    "infinite": b'{"choices": [{"message": {"content": "x"}}], "usage": 1e999}',
    "half a pair": b'{"choices": [{"message": {"content": "\\ud83d"}}]}',
    "no UTF-8": b'{"choices": [{"message": {"content": "\xff"}}]}',
    "a control character": b'{"choices": [{"message": {"content": "\x00"}}]}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_json_that_no_reader_should_be_given_is_an_error(server, body):
    server.rule = lambda _: (200, body)
    asked = GenerationRequest(PROMPT, SCHEMA, 10)
    assert "sent no valid JSON" in str(failing(lambda: server.generator(retries=0).generate(asked)))
    assert server.url in str(failing(lambda: server.generator(model=None, retries=0)))
    assert server.url in str(failing(lambda: server.generator(retries=0).score(PROMPT, ["A"])))


@pytest.mark.parametrize("count", [True, 10**400, 2**63, -1, 0.5, "7", [7], {"n": 7}])
def test_a_count_of_tokens_that_is_none_is_left_out(server, count):
    server.will((200, {**completion(REPLY), "usage": {"prompt_tokens": count, "completion_tokens": 3}}))
    expected = 1 if count is True else 0
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 9))[3:] == (expected, 3)


def test_a_reply_far_beyond_its_cap_is_cut_there(server):
    """A megabyte where ten tokens were asked for: what a reader sees of it is closed as a cut reply is."""
    server.will('{"answer": "' + "a " * 500_000 + '"}')
    generation = server.generator().generate(GenerationRequest(PROMPT, schema_for(OPEN, 0), 10))
    assert generation.capped
    assert len(generation.text) < 10_000
    assert json.loads(generation.text)["answer"].startswith("a a a")


def test_a_completion_without_text_is_an_empty_reply(server):
    server.will((200, completion(None)))
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)) == Generation("", False)


def test_a_refused_connection_names_the_server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    error = failing(lambda: ServerGenerator(Server(url, 5.0, 1), None, 4096))
    assert url in str(error)
    assert "--llm" in str(error)


def test_a_server_that_does_not_answer_in_time_is_an_error():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(20)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        error = failing(
            lambda: ServerGenerator(Server(url, 0.05, 4), "m", 4096).generate(GenerationRequest(PROMPT, SCHEMA, 10))
        )
    assert url in str(error)


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


def test_an_interruption_while_waiting_for_the_server_ends_the_run_at_once(server, monkeypatch):
    monkeypatch.setattr(retries, "BACKOFF", 60.0)
    server.rule = lambda body: (503, {})
    generator = server.generator(retries=20)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        each_answered(
            range(9), lambda _: generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)), lambda *_: None, at_a_time=3
        )
    assert time.monotonic() - started < 25, "it waits for no further try, half a minute away at least"


@pytest.mark.parametrize("url", ["http://", "http://localhost:port", "http://[::1", "http://exa mple"])
def test_a_url_that_is_none_is_an_error_of_ours(url):
    with pytest.raises(BioragError) as caught:
        ServerGenerator(Server(url, 1.0, 1), None, 4096)
    assert "\n" not in str(caught.value)


def test_a_long_error_page_is_cut(server):
    server.will((403, b"x" * 100_000))
    assert len(str(failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10))))) < 500


def test_an_error_page_of_several_lines_stays_one_sentence(server):
    server.will((403, b"<html>\n<body>\nForbidden\n"))
    failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)))


# --- servers that know other ways to ask for JSON ---


@pytest.mark.parametrize("status", [400, 404, 415, 422, 501])
def test_a_refused_json_schema_is_asked_for_as_a_json_object_from_then_on(server, status):
    server.will((status, b"unknown response_format"), REPLY, REPLY)
    generator = server.generator()
    assert generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    assert generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    formats = [body["response_format"] for body in server.bodies]
    assert formats[0]["type"] == "json_schema"
    assert formats[1] == formats[2] == {"type": "json_object", "schema": SCHEMA}


def test_a_refusal_that_llama_cpp_server_calls_a_500_is_one(server):
    """Its own words; it has 500 for every request that it cannot validate."""
    said = (
        "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
        "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}"
    )
    server.will((500, {"error": {"message": said, "type": "internal_server_error"}}), REPLY)
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema", "json_object"]


def test_a_server_that_takes_neither_is_asked_without_a_format(server):
    server.will((400, b"no"), (400, b"no"), REPLY, REPLY)
    generator = server.generator()
    assert generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    assert generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)).text == REPLY
    assert ["response_format" in body for body in server.bodies] == [True, True, False, False]


def test_a_request_refused_in_every_form_is_an_error_with_the_servers_reason(server):
    server.will(*[(400, b"prompt is longer than the context")] * 3)
    error = failing(lambda: server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10)))
    assert "prompt is longer than the context" in str(error)
    assert len(server.asked) == 3


def test_one_refused_request_does_not_change_how_the_next_is_asked(server):
    server.will(*[(400, b"too long")] * 3, REPLY)
    generator = server.generator()
    failing(lambda: generator.generate(GenerationRequest(PROMPT, SCHEMA, 10)))
    generator.generate(GenerationRequest(PROMPT, SCHEMA, 10))
    assert server.bodies[3]["response_format"]["type"] == "json_schema"


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


# --- tokens ---


def counted(content, *tokens, finish="stop"):
    usage = dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True))
    return 200, {**completion(content, finish), "usage": usage}


def test_tokens_are_those_that_the_server_says(server):
    server.will(counted(REPLY, 31, 12))
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 9))[3:] == (31, 12)
    server.will(counted('{"step_by_step_thinking": "It', 31, 9, finish="length"), counted(REST, 50, 8))
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 9))[3:] == (81, 17), "those of both requests"


@pytest.mark.parametrize("usage", [None, [], {}, {"prompt_tokens": None, "completion_tokens": "7"}])
def test_a_server_that_counts_nothing_is_no_error(server, usage):
    server.will((200, {**completion(REPLY), "usage": usage}))
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 9)) == Generation(REPLY, False)


def test_several_texts_share_their_caps_and_stay_cut(server):
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"query": text, "found": {"type": "array", "items": text, "maxItems": 2}}}
    server.will((200, completion('{"query": "Is it', "length")))
    assert server.generator().generate(GenerationRequest(PROMPT, schema, 50)) == Generation('{"query": "Is it', True)
    assert [body["max_tokens"] for body in server.bodies] == [150]


# --- capped replies ---

REST = '{"relevant_context": "NOT", "answer_choice": "B"}'
CAPPED = [
    # (as the server sends it, the text it holds)
    ('{"step_by_step_thinking": "It is asp', "It is asp"),
    ('{"step_by_step_thinking":"It is asp', "It is asp"),
    ('{\n  "step_by_step_thinking": "It is asp', "It is asp"),
    ('{"step_by_step_thinking": "Line one\\nsaid \\"yes\\" \\u03b2', 'Line one\nsaid "yes" β'),
    ('{"step_by_step_thinking": "cut escape \\', "cut escape "),
    ('{"step_by_step_thinking": "cut escape \\u03', "cut escape "),
    ('{"step_by_step_thinking": "a backslash \\\\', "a backslash \\"),
    ('{"step_by_step_thinking": "Done.", "relevant_con', "Done."),
    ('{"step_by_step_thinking": "See: \\"x\\": \\"y', 'See: "x": "y'),
    ('{"step_by_step_thinking": "', ""),
    ('{"step_by', ""),
]


@pytest.mark.parametrize(("partial", "text"), CAPPED)
def test_the_rest_of_a_capped_reply_is_asked_for_and_joined(server, partial, text):
    server.will((200, completion(partial, "length")), REST)
    seen = []
    generation = server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 7), seen.append)
    assert generation.capped
    assert json.loads(generation.text) == {
        "step_by_step_thinking": text,
        "relevant_context": "NOT",
        "answer_choice": "B",
    }
    assert list(json.loads(generation.text)) == list(SCHEMA["properties"])
    assert seen == [generation.text]
    second = server.bodies[1]
    assert second["messages"][:2] == MESSAGES
    assert second["messages"][2] == {"role": "assistant", "content": partial}
    assert second["messages"][3]["role"] == "user"
    assert second["response_format"]["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"relevant_context": {"enum": ["YES", "NOT"]}, "answer_choice": {"enum": ["A", "B"]}},
        "required": ["relevant_context", "answer_choice"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("partial", "text"), [(p.replace("step_by_step_thinking", "answer"), t) for p, t in CAPPED[:7]]
)
def test_a_capped_reply_with_one_field_is_closed_without_asking_again(server, partial, text):
    server.will((200, completion(partial, "length")))
    generation = server.generator().generate(GenerationRequest(PROMPT, schema_for(OPEN, 0), 7))
    assert generation.capped
    assert json.loads(generation.text) == {"answer": text}
    assert len(server.asked) == 1


@pytest.mark.parametrize("rest", ["", "no JSON", "[1]", '{"answer_choice": '])
def test_a_rest_that_cannot_be_read_leaves_the_partial_reply(server, rest):
    server.will((200, completion('{"step_by_step_thinking": "It', "length")), rest)
    assert server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 7)) == Generation(
        '{"step_by_step_thinking": "It', True
    )


# --- scores ---


def scored(*pairs):
    top = [{"token": token, "logprob": logprob} for token, logprob in pairs]
    return (
        200,
        completion("B", "length", logprobs={"content": [{"token": "B", "logprob": -0.5, "top_logprobs": top}]}),
    )


def test_scores_are_the_servers_log_probabilities(server):
    server.will(scored(("B", -0.5), (" A", -1.5), ("{", -2.0), ("A", -9.0)))
    assert server.generator().score(PROMPT, ["A", "B", "C"]).logprobs == {
        "A": -1.5,
        "B": -0.5,
    }  # C is not among the listed
    body = server.bodies[0]
    assert (body["max_tokens"], body["temperature"], body["logprobs"], body["top_logprobs"]) == (1, 0, True, 20)
    assert "response_format" not in body
    assert body["messages"][1] == MESSAGES[1]
    assert body["messages"] == MESSAGES


@pytest.mark.parametrize(
    "body",
    [
        completion("B"),
        completion("B", logprobs=None),
        completion("B", logprobs={"content": []}),
        completion("B", logprobs={"content": [{"token": "B", "logprob": -0.5}]}),
        completion("B", logprobs={"tokens": ["B"], "top_logprobs": [{"B": -0.5}]}),
        *(
            completion("B", logprobs={"content": [{"top_logprobs": [{"token": "B", "logprob": score}]}]})
            for score in (None, "-0.5", "NaN", True, [-0.5], {"n": -0.5})
        ),
        *(
            completion("B", logprobs={"content": [{"top_logprobs": [{"token": token, "logprob": -0.5}]}]})
            for token in (None, 5, ["B"])
        ),
        *(completion("B", logprobs=odd) for odd in (7, "x", [], [{}], {"content": {}}, {"content": [None]})),
        completion("B", logprobs={"content": [{"top_logprobs": {"B": -0.5}}]}),
        {"choices": []},
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
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("cap", [3, 60])
def test_a_real_server_gives_replies_of_the_schema(llama_server, cap):
    generator = ServerGenerator(Server(llama_server, 240.0, 1), None, 2048)
    assert generator.name
    snippets = [Snippet("s1", "Aspirin", "Aspirin lowers fever."), Snippet("s2", "", "Insulin moves glucose.")]
    prompt = load_template("choice").render(CHOICE, snippets)
    generation = generator.generate(GenerationRequest(prompt, SCHEMA, cap))
    fields = json.loads(generation.text)
    assert list(fields) == list(SCHEMA["properties"])
    assert fields["answer_choice"] in ("A", "B")
    assert fields["relevant_context"] in ("YES", "NOT")
    assert isinstance(fields["step_by_step_thinking"], str)
    assert growing_text(generation.text) == fields["step_by_step_thinking"]
    if cap == 3:
        assert generation.capped
    # Its tokens are counted by the server itself too: our estimate is not below them.
    used = httpx.post(f"{llama_server}/extras/tokenize/count", json={"input": prompt.system + prompt.user}).json()
    assert generator.count_tokens(prompt) >= used["count"]


@pytest.mark.slow
def test_a_real_server_gives_log_probabilities(llama_server):
    generator = ServerGenerator(Server(llama_server, 240.0, 1), None, 2048)
    scores = generator.score(
        Prompt("Reply with one letter.", "Which is the second letter? A, B or C?"), ["A", "B", "C"]
    ).logprobs
    assert list(scores) == ["A", "B", "C"]
    listed = [score for score in scores.values() if score > -100.0]
    assert listed
    assert all(score <= 0 for score in listed)
    assert sum(math.exp(score) for score in listed) <= 1.001


@pytest.mark.slow
def test_a_real_servers_refusal_is_an_error_of_ours(llama_server):
    generator = ServerGenerator(Server(llama_server, 240.0, 1), None, 100_000)
    with pytest.raises(ServiceError, match=llama_server):
        generator.generate(GenerationRequest(Prompt("You help.", "fever " * 5000), SCHEMA, 10))


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(server, monkeypatch):
    with closing(Script()) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        server.will(REPLY)
        server.generator().generate(GenerationRequest(PROMPT, SCHEMA, 10))
        assert (len(server.asked), proxy.asked) == (1, [])
        elsewhere = ServerGenerator(Server("http://192.0.2.1:8080", 5, 0), "m", 4096)
        proxy.will(REPLY)
        elsewhere.generate(GenerationRequest(PROMPT, SCHEMA, 10))
        assert len(proxy.asked) == 1, "the variables count for every other host"
