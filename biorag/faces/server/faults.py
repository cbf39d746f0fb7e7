"""Errors as responses: a status and one sentence."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from biorag.errors import BioragError, ServiceError
from biorag.utils.text import showable

API, OPENAI, MCP = "/api/", "/v1/", "/mcp"
STATUSES = {2: 400, 3: 422, 4: 404, 5: 409, 6: 503}  # by the exit codes of the command line


class RefusedError(ServiceError):
    """A refused request, with its status; for OpenAI's clients with the parameter at fault and a code."""

    def __init__(
        self,
        status: int,
        sentence: str,
        headers: dict[str, str] | None = None,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status, self.headers = int(status), headers or {}
        self.param, self.code = param, code


def status_of(error: BioragError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RefusedError):
        return error.status
    return STATUSES.get(error.exit_code, 500)


def error_response(path: str, error: BioragError) -> Response:
    """Return an error as the clients of a path read it."""
    status, sentence = status_of(error), showable(error.public)
    headers = dict(error.headers) if isinstance(error, RefusedError) else {}
    if path.startswith(OPENAI):
        return JSONResponse(openai_error(error), status, headers)
    if path.startswith((API, MCP)):
        return JSONResponse({"error": sentence}, status, headers)
    return PlainTextResponse(sentence + "\n", status, headers)


def openai_error(error: BioragError) -> dict[str, Any]:
    """Return an error as OpenAI's clients read it."""
    kind = "invalid_request_error" if status_of(error) < 500 else "server_error"
    param, code = (error.param, error.code) if isinstance(error, RefusedError) else (None, None)
    return {"error": {"message": showable(error.public), "type": kind, "param": param, "code": code}}
