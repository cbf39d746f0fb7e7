"""A model behind an OpenAI-compatible server: vLLM, llama-server, Ollama, llama_cpp.server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import Field

from biorag.errors import ServiceError, UsageError
from biorag.prompts.grammar import free_text_openings, growing_text
from biorag.settings.settings import Settings
from biorag.types import GREEDY, Generation, GenerationRequest, Prompt, Sampling, Scores
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parse_json, parsed
from biorag.utils.retries import Retries, excerpt, may_pass
from biorag.utils.transport import BoundedTransport

REFUSED = frozenset({400, 404, 415, 422, 501})
BYTES_PER_TOKEN = 3.0
ENVELOPE_TOKENS = 32
REST_TOKENS = 128
LONGEST_TOKEN = 64  # characters on average of the tokens of the longest reply that is read to its end
MOST_TOKENS = 2**31  # that a server may say it counted
One = TypeVar("One")
AtLeastOne = Annotated[list[One], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Message:
    content: str | None


@dataclass(frozen=True, slots=True)
class _Choice:
    message: _Message
    finish_reason: Any = None


@dataclass(frozen=True, slots=True)
class _Completion:
    """What is read of a chat completion; what servers add to it is left out."""

    choices: AtLeastOne[_Choice]
    usage: Any = None


@dataclass(frozen=True, slots=True)
class _TokenScore:
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class _Position:
    top_logprobs: list[_TokenScore]


@dataclass(frozen=True, slots=True)
class _Positions:
    content: AtLeastOne[_Position]


@dataclass(frozen=True, slots=True)
class _ScoredChoice:
    logprobs: _Positions


@dataclass(frozen=True, slots=True)
class _Scored:
    """What is read of a completion's log-probabilities."""

    choices: AtLeastOne[_ScoredChoice]


@dataclass(frozen=True, slots=True)
class _Model:
    id: Annotated[str, Field(min_length=1, max_length=500)]


@dataclass(frozen=True, slots=True)
class _Models:
    data: AtLeastOne[_Model]


class ServerSource:
    """The base URL of a server, whose weights are not seen; see `GeneratorSource`."""

    def __init__(self, spec: str) -> None:
        self._url = spec

    def check(self) -> None:
        """Do nothing: a server is asked when it is reached."""

    def sha256(self) -> str:
        """Return no hash."""
        return ""

    def identity(self) -> Mapping[str, Any]:
        """Return the URL."""
        return {"server": self._url}

    def open(self, settings: Settings, at_a_time: int) -> ServerGenerator:
        """Reach the server."""
        server = settings.services.server(self._url, "llm", at_a_time)
        return ServerGenerator(server, settings.generation.llm_model, settings.generation.context_window)


class ServerGenerator:
    """Asks a chat-completion endpoint for JSON under a schema; several threads may ask at a time.

    The server's URL may or may not end in `/v1`. Tokens are estimated from bytes, since such servers have no
    common way to count them.

    Raises
    ------
    ServiceError
        If the server does not answer, after retries with backoff.
    """

    def __init__(self, server: Server, model: str | None, context_window: int) -> None:
        self._url = without_credentials(server.url.rstrip("/"))
        root = self._url if self._url.endswith("/v1") else f"{self._url}/v1"
        headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
        # A server that answers one request at a time begins the last of several when it is done with the others.
        seconds = server.timeout * server.at_a_time
        try:
            self._http = httpx.Client(
                base_url=root,
                headers=headers,
                timeout=seconds,
                auth=server.auth,
                transport=BoundedTransport(root, seconds),
            )
        except httpx.InvalidURL as error:
            raise UsageError(
                f"{self._url!r} is no URL of a server ({error}): write e.g. http://localhost:8080"
            ) from None
        advice = "check --llm and that it runs, then give the same command again"
        self._retries = Retries(f"the server at {self._url}", advice, server.retries, _may_pass)
        self.context_window = context_window
        self.controls: Sequence[str] = ()
        self._schema_style = 0
        self._lock = threading.Lock()
        self.name = model or self._first_model()

    def count_tokens(self, prompt: Prompt) -> int:
        """Return an upper estimate of the prompt's tokens."""
        return int(len((prompt.system + prompt.user).encode()) / BYTES_PER_TOKEN) + ENVELOPE_TOKENS

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply with a JSON object of the schema.

        Where the server cuts the reply at the cap, it is asked once more for the fields after the free text; a reply
        of several texts, which share their caps, stays cut.
        """
        messages, schema = _messages(request.prompt), request.schema
        texts = len(free_text_openings(schema))
        reply = self._complete(messages, schema, texts * request.max_tokens, request.sampling)
        if reply.capped and texts == 1:
            reply = self._finish(messages, reply, schema)
        if on_text:
            on_text(reply.text)
        return reply

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first token of the reply.

        A choice beyond the 20 tokens that servers list is left out: it is less likely than those listed.

        Raises
        ------
        ServiceError
            If the server gives no log-probabilities.
        """
        body = {"messages": _messages(prompt), "max_tokens": 1, "temperature": 0}
        reply = self._post({**body, "logprobs": True, "top_logprobs": 20})
        assert reply is not None, "only a format is refused silently"
        try:
            scored: _Scored = parsed(_Scored, reply, "ignore")
        except ValueError as fault:
            raise ServiceError(
                f"the server at {self._url} gives no log-probabilities ({fault}): use --answer generate"
            ) from None
        listed = scored.choices[0].logprobs.content[0].top_logprobs
        found = {item.token.strip(): item.logprob for item in reversed(listed)}
        return Scores({choice: found[choice] for choice in choices if choice in found})

    def score_all(self, asked: Sequence[tuple[Prompt, Sequence[str]]]) -> list[Scores]:
        """Return what `score` does for each prompt and its choices, one after the other."""
        return [self.score(prompt, choices) for prompt, choices in asked]

    def _complete(
        self, messages: list[dict[str, str]], schema: Mapping[str, Any], max_tokens: int, sampling: Sampling = GREEDY
    ) -> Generation:
        """Ask under the schema, in the style this server takes: OpenAI's, llama.cpp's, or none."""
        styles = (
            {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}},
            {"type": "json_object", "schema": schema},
            None,
        )
        first = self._schema_style
        for style, response_format in enumerate(styles[first:], first):
            body = {"messages": messages, "max_tokens": max_tokens, "temperature": sampling.temperature}
            if sampling.temperature:
                body["seed"] = sampling.seed
            if response_format:
                body["response_format"] = response_format
            reply = self._post(body, may_refuse=response_format is not None)
            if reply is not None:
                with self._lock:
                    self._schema_style = max(self._schema_style, style)
                return self._read(reply, max_tokens)
        raise AssertionError("the last style is never refused silently")

    def _finish(self, messages: list[dict[str, str]], cut: Generation, schema: Mapping[str, Any]) -> Generation:
        """Ask for the rest of a capped reply and join both into one JSON object."""
        first, *others = schema["properties"]
        thought = growing_text(cut.text)
        if not others:
            return cut._replace(text=json.dumps({first: thought}, ensure_ascii=False))
        rest = {
            **schema,
            "properties": {name: schema["properties"][name] for name in others},
            "required": others,
        }
        request = f"Stop here. Reply only with a JSON object with the keys {', '.join(others)}."
        turns = [{"role": "assistant", "content": cut.text}, {"role": "user", "content": request}]
        more = self._complete([*messages, *turns], rest, REST_TOKENS)
        joined = cut._replace(
            prompt_tokens=cut.prompt_tokens + more.prompt_tokens,
            completion_tokens=cut.completion_tokens + more.completion_tokens,
        )
        try:
            fields = parse_json(more.text)
        except ValueError:
            return joined
        if not isinstance(fields, dict):
            return joined
        return joined._replace(text=json.dumps({first: thought, **fields}, ensure_ascii=False))

    def _first_model(self) -> str:
        reply = self._request("GET", "/models", None)
        assert reply is not None, "only a format is refused silently"
        try:
            listed: _Models = parsed(_Models, reply, "ignore")
        except ValueError as fault:
            raise ServiceError(
                f"the server at {self._url} lists no model ({fault}): name one with --llm-model"
            ) from None
        return listed.data[0].id

    def _read(self, reply: bytes, max_tokens: int) -> Generation:
        """Return a completion, with the tokens that the server says it took; one beyond the cap is cut."""
        try:
            completion: _Completion = parsed(_Completion, reply, "ignore")
        except ValueError as fault:
            raise ServiceError(f"the server at {self._url} sent no chat completion ({fault}): check --llm") from None
        choice, most = completion.choices[0], LONGEST_TOKEN * (max_tokens + ENVELOPE_TOKENS)
        text = choice.message.content or ""
        asked, wrote = (_count(completion.usage, key) for key in ("prompt_tokens", "completion_tokens"))
        return Generation(text[:most], choice.finish_reason == "length" or len(text) > most, False, asked, wrote)

    def _post(self, body: Mapping[str, Any], may_refuse: bool = False) -> bytes | None:
        return self._request("POST", "/chat/completions", {"model": self.name, **body}, may_refuse)

    def _request(self, method: str, path: str, body: Any, may_refuse: bool = False) -> bytes | None:
        """Return the answer to a request, JSON, after retries; None if it may be refused and is."""
        response = self._retries(self._http.build_request(method, path, json=body), self._http.send)
        if response.is_success:
            return response.content
        if may_refuse and (response.status_code in REFUSED or _misses_format(response)):
            return None
        said = self._retries.said(response)
        hint = "; set BIORAG_CONTEXT_WINDOW to the server's window" if "context" in excerpt(response) else ""
        raise ServiceError(f"the server at {self._url} {said}{hint}")


def _may_pass(response: httpx.Response) -> bool:
    return may_pass(response) and not _misses_format(response)


def _misses_format(response: httpx.Response) -> bool:
    """Return whether an answer is llama_cpp.server's, which has 500 for every request that it cannot validate."""
    return response.status_code == 500 and "response_format" in excerpt(response)


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def _count(usage: Any, key: str) -> int:
    """Return a count of a completion's usage; 0 where there is none."""
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 < count < MOST_TOKENS else 0
