"""A model behind an OpenAI-compatible server: vLLM, llama-server, Ollama, llama_cpp.server."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from biorag.errors import ServiceError, UsageError
from biorag.prompts.grammar import growing_text
from biorag.types import Generation, Prompt, Scores

logger = logging.getLogger(__name__)

RETRIES = 4
BACKOFF = 0.5
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
REFUSED = frozenset({400, 404, 415, 422, 501})
BYTES_PER_TOKEN = 3.0
ENVELOPE_TOKENS = 32
REST_TOKENS = 128


class ServerGenerator:
    """Asks a chat-completion endpoint for JSON under a schema; several threads may ask at a time.

    `base_url` may or may not end in `/v1`. Tokens are estimated from bytes, since such servers have no
    common way to count them.

    Raises
    ------
    ServiceError
        If the server does not answer, after retries with backoff.
    """

    def __init__(
        self, base_url: str, model: str | None, api_key: str | None, timeout: float, context_window: int
    ) -> None:
        self._url = base_url.rstrip("/")
        root = self._url if self._url.endswith("/v1") else f"{self._url}/v1"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx.Client(base_url=root, headers=headers, timeout=timeout)
        except httpx.InvalidURL as error:
            raise UsageError(
                f"{base_url!r} is no URL of a server ({error}): write e.g. http://localhost:8080"
            ) from None
        self.context_window = context_window
        self._schema_style = 0
        self._lock = threading.Lock()
        self.name = model or self._first_model()

    def count_tokens(self, prompt: Prompt) -> int:
        """Return an upper estimate of the prompt's tokens."""
        return int(len((prompt.system + prompt.user).encode()) / BYTES_PER_TOKEN) + ENVELOPE_TOKENS

    def generate(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        max_tokens: int,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Reply with a JSON object of the schema.

        Where the server cuts the reply at the cap, it is asked once more for the fields after the free text.
        """
        messages = _messages(prompt)
        text, capped = self._complete(messages, schema, max_tokens)
        if capped:
            text = self._finish(messages, text, schema)
        if on_text:
            on_text(text)
        return Generation(text, capped)

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
        try:
            listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            found = {item["token"].strip(): float(item["logprob"]) for item in reversed(listed)}
        except (KeyError, IndexError, TypeError):
            raise ServiceError(f"the server at {self._url} gives no log-probabilities: use --answer generate") from None
        return Scores({choice: found[choice] for choice in choices if choice in found})

    def _complete(self, messages: list[dict[str, str]], schema: Mapping[str, Any], max_tokens: int) -> tuple[str, bool]:
        """Ask under the schema, in the style this server takes: OpenAI's, llama.cpp's, or none."""
        styles = (
            {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}},
            {"type": "json_object", "schema": schema},
            None,
        )
        first = self._schema_style
        for style, response_format in enumerate(styles[first:], first):
            body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0}
            if response_format:
                body["response_format"] = response_format
            reply = self._post(body, may_refuse=response_format is not None)
            if reply is not None:
                with self._lock:
                    self._schema_style = max(self._schema_style, style)
                return _read(reply, self._url)
        raise AssertionError("the last style is never refused silently")

    def _finish(self, messages: list[dict[str, str]], partial: str, schema: Mapping[str, Any]) -> str:
        """Ask for the rest of a capped reply and join both into one JSON object."""
        first, *others = schema["properties"]
        thought = growing_text(partial)
        if not others:
            return json.dumps({first: thought}, ensure_ascii=False)
        rest = {
            **schema,
            "properties": {name: schema["properties"][name] for name in others},
            "required": others,
        }
        request = f"Stop here. Reply only with a JSON object with the keys {', '.join(others)}."
        turns = [{"role": "assistant", "content": partial}, {"role": "user", "content": request}]
        text, _ = self._complete([*messages, *turns], rest, REST_TOKENS)
        try:
            fields = json.loads(text)
        except ValueError:
            return partial
        return json.dumps({first: thought, **fields}, ensure_ascii=False) if isinstance(fields, dict) else partial

    def _first_model(self) -> str:
        reply = self._request("GET", "/models", None)
        try:
            return str(reply["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise ServiceError(f"the server at {self._url} lists no model: name one with --llm-model") from None

    def _post(self, body: Mapping[str, Any], may_refuse: bool = False) -> Any:
        return self._request("POST", "/chat/completions", {"model": self.name, **body}, may_refuse)

    def _request(self, method: str, path: str, body: Any, may_refuse: bool = False) -> Any:
        """Send one request, again after passing faults; None if it may be refused and is."""
        for attempt in range(RETRIES + 1):
            try:
                response = self._http.request(method, path, json=body)
                response.raise_for_status()
                return response.json()
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                text = error.response.text
                # llama_cpp.server answers 500 to every request that it cannot validate.
                if may_refuse and (status in REFUSED or (status == 500 and "response_format" in text)):
                    return None
                reason = f"answered {status}: {' '.join(text.split())[:200]!r}"
                if status == 400 and "context" in text:
                    reason += "; set BIORAG_CONTEXT_WINDOW to the server's window"
                if status not in RETRIED:
                    raise ServiceError(f"the server at {self._url} {reason}") from error
            except (httpx.HTTPError, ValueError) as error:
                reason = f"failed: {error or type(error).__name__}"
            if attempt < RETRIES:
                logger.warning("the server at %s %s; trying again", self._url, reason)
                time.sleep(BACKOFF * 2**attempt)
        raise ServiceError(f"the server at {self._url} {reason}, {RETRIES + 1} times: check --llm and that it runs")


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def _read(reply: Any, url: str) -> tuple[str, bool]:
    try:
        choice = reply["choices"][0]
        return str(choice["message"]["content"] or ""), choice.get("finish_reason") == "length"
    except (KeyError, IndexError, TypeError):
        raise ServiceError(f"the server at {url} sent no chat completion") from None
