"""A model behind an OpenAI-compatible server: vLLM, llama-server, Ollama, llama_cpp.server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from pydantic import AliasPath, Field

from biorag.errors import ServiceError, UsageError
from biorag.generators.source import GeneratorSource
from biorag.prompts.grammar import free_text_openings, growing_text
from biorag.settings.settings import Settings
from biorag.types import GREEDY, Generation, GenerationRequest, Prompt, Sampling, Scores
from biorag.utils.http import BoundedTransport, Retries, excerpt, may_pass
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parse_json, parsed
from biorag.utils.secrets import DATA, redacted

REFUSED = frozenset({400, 404, 415, 422, 501})
BYTES_PER_TOKEN = 3.0
ENVELOPE_TOKENS = 32
REST_TOKENS = 128
LONGEST_TOKEN = 64  # characters on average of the tokens of the longest reply that is read to its end
LISTED_TOKENS = 20  # tokens whose log-probabilities a server lists at most
MOST_TOKENS = 2**31  # that a server may report


def _at(first: str, *path: str | int) -> Any:
    return Field(validation_alias=AliasPath(first, *path))


@dataclass(frozen=True, slots=True)
class _Completion:
    """The fields of a chat completion that are read."""

    text: Annotated[str | None, _at("choices", 0, "message", "content")]
    finish_reason: Annotated[Any, _at("choices", 0, "finish_reason")] = None
    usage: Any = None


@dataclass(frozen=True, slots=True)
class _TokenScore:
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class _Scored:
    """The log-probabilities of a completion's first token."""

    listed: Annotated[list[_TokenScore], _at("choices", 0, "logprobs", "content", 0, "top_logprobs")]


@dataclass(frozen=True, slots=True)
class _Models:
    first: Annotated[str, Field(min_length=1, max_length=500), _at("data", 0, "id")]


class ServerSource(GeneratorSource):
    """The base URL of a server, whose weights are not known."""

    def identity(self) -> Mapping[str, Any]:
        """Return the URL."""
        return {"server": self.spec}

    def open(self, settings: Settings, at_a_time: int) -> ServerGenerator:
        """Reach the server."""
        server = settings.services.server(self.spec, "llm", at_a_time)
        return ServerGenerator(server, settings.generation.llm_model, settings.generation.context_window)


class ServerGenerator:
    """Asks a chat-completion endpoint for JSON, under a schema or freely; several threads may ask at a time.

    The server's URL may or may not end in `/v1`. Tokens are estimated from bytes, since such servers have no
    common way to count them.

    `option` is the one that named it. Raises `ServiceError` if the server does not answer, after retries with backoff.
    """

    def __init__(self, server: Server, model: str | None, context_window: int, option: str = "--llm") -> None:
        self._option = option
        self._url = without_credentials(server.url.rstrip("/"))
        root = self._url if self._url.endswith("/v1") else f"{self._url}/v1"
        # A server that answers one request at a time begins the last of several when it is done with the others.
        seconds = server.timeout * server.at_a_time
        try:
            self._http = httpx.Client(
                base_url=root,
                headers={"Authorization": f"Bearer {server.api_key}"} if server.api_key else {},
                timeout=seconds,
                auth=server.auth,
                transport=BoundedTransport(root, seconds),
            )
        except httpx.InvalidURL as error:
            raise UsageError(
                f"{self._url!r} is not the URL of a server ({error}): write e.g. http://localhost:8080"
            ) from None
        advice = f"check {option} and that it runs, then give the same command again"
        self._retries = Retries(f"the server at {self._url}", advice, server.retries, _may_pass)
        self.context_window = context_window
        self.controls: Sequence[str] = ()
        self._schema_style = 0  # the first of the styles of `_complete` that the server takes
        self.name = model or ""
        if not model:
            models = self._parsed(
                _Models, self._request("GET", "/models"), "lists no model", f"name one with {option}-model"
            )
            self.name = models.first

    def count_tokens(self, prompt: Prompt) -> int:
        """Return an upper estimate of the prompt's tokens."""
        return int(len((prompt.system + prompt.user).encode()) / BYTES_PER_TOKEN) + ENVELOPE_TOKENS

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply with a JSON object of the schema, or freely.

        A reply that the server cuts at the cap is completed by a second request for the fields after the free text; a
        reply of several texts, which share their caps, stays cut, and so does a free one.
        """
        messages, schema = _messages(request.prompt), request.schema if request.constrained else None
        texts = len(free_text_openings(schema)) if schema else 1
        reply = self._complete(messages, schema, texts * request.max_tokens, request.sampling)
        if schema and reply.capped and texts == 1:
            reply = self._finish(messages, reply, schema)
        if on_text:
            on_text(reply.text)
        return reply

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first token of the reply.

        A choice beyond the `LISTED_TOKENS` that servers list is left out: it is less likely than those listed.

        Raises `ServiceError` if the server gives no log-probabilities.
        """
        body = {"messages": _messages(prompt), "max_tokens": 1, "temperature": 0}
        reply = self._request("POST", "/chat/completions", {**body, "logprobs": True, "top_logprobs": LISTED_TOKENS})
        scored = self._parsed(_Scored, reply, "gives no log-probabilities", "use --answer generate")
        logprobs = {item.token.strip(): item.logprob for item in reversed(scored.listed)}
        return Scores({choice: logprobs[choice] for choice in choices if choice in logprobs})

    def _complete(
        self,
        messages: list[dict[str, str]],
        schema: Mapping[str, Any] | None,
        max_tokens: int,
        sampling: Sampling = GREEDY,
    ) -> Generation:
        """Ask under the schema, if there is one, in the style this server takes: OpenAI's, llama.cpp's, or none."""
        formats = [
            {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}},
            {"type": "json_object", "schema": schema},
        ]
        styles = [*({"response_format": form} for form in formats if schema), {}]
        body = {"messages": messages, "max_tokens": max_tokens, "temperature": sampling.temperature}
        if sampling.temperature:
            body["seed"] = sampling.seed
        for style in range(min(self._schema_style, len(styles) - 1), len(styles)):
            reply = self._request(
                "POST", "/chat/completions", {**body, **styles[style]}, may_refuse=bool(styles[style])
            )
            if reply is not None:
                self._schema_style = max(self._schema_style, style)
                break
        return self._generation(reply, max_tokens)

    def _generation(self, reply: bytes | None, max_tokens: int) -> Generation:
        """Return a completion, with the tokens that the server reports; one beyond the cap is cut."""
        completion = self._parsed(_Completion, reply, "sent no chat completion", f"check {self._option}")
        text, most = redacted(completion.text or "", DATA), LONGEST_TOKEN * (max_tokens + ENVELOPE_TOKENS)
        capped = completion.finish_reason == "length" or len(text) > most
        counts = (_count(completion.usage, key) for key in ("prompt_tokens", "completion_tokens"))
        return Generation(text[:most], capped, False, *counts)

    def _finish(self, messages: list[dict[str, str]], cut: Generation, schema: Mapping[str, Any]) -> Generation:
        """Ask for the rest of a capped reply and join both into one JSON object."""
        first, *others = schema["properties"]
        thought = growing_text(cut.text)
        if not others:
            return cut._replace(text=json.dumps({first: thought}, ensure_ascii=False))
        properties = {name: schema["properties"][name] for name in others}
        request = f"Stop here. Reply only with a JSON object with the keys {', '.join(others)}."
        turns = [{"role": "assistant", "content": cut.text}, {"role": "user", "content": request}]
        more = self._complete(
            [*messages, *turns], {**schema, "properties": properties, "required": others}, REST_TOKENS
        )
        joined = cut._replace(
            prompt_tokens=cut.prompt_tokens + more.prompt_tokens,
            completion_tokens=cut.completion_tokens + more.completion_tokens,
        )
        try:
            fields = {first: thought, **parse_json(more.text)}
        except (ValueError, TypeError):  # not JSON, or not an object
            return joined
        return joined._replace(text=json.dumps(fields, ensure_ascii=False))

    def _parsed(self, kind: type[Any], reply: bytes | None, fault: str, advice: str) -> Any:
        assert reply is not None, "only a format is refused silently"
        try:
            return parsed(kind, reply, "ignore")
        except ValueError as error:
            raise ServiceError(f"the server at {self._url} {fault} ({error}): {advice}") from None

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, may_refuse: bool = False
    ) -> bytes | None:
        """Return the answer to a request, JSON, after retries; None if it may be refused and is."""
        values = {"model": self.name, **body} if body else None
        response = self._retries(self._http.build_request(method, path, json=values), self._http.send)
        if response.is_success:
            return response.content
        if may_refuse and (response.status_code in REFUSED or _misses_format(response)):
            return None
        hint = "; set BIORAG_CONTEXT_WINDOW to the server's window" if "context" in excerpt(response) else ""
        raise self._retries.refusal(response, hint)


def _may_pass(response: httpx.Response) -> bool:
    return may_pass(response) and not _misses_format(response)


def _misses_format(response: httpx.Response) -> bool:
    """Return whether an answer is llama_cpp.server's, which has 500 for every request that it cannot validate."""
    return response.status_code == 500 and "response_format" in excerpt(response)


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def _count(usage: Any, key: str) -> int:
    """Return a count of a completion's usage; 0 for a missing or implausible one."""
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 < count < MOST_TOKENS else 0
