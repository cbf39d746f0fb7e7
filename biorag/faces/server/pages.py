"""The page: question and answer, exports, log-in. It works with and without scripts.

Every value of a template is escaped, and shown without control characters.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from biorag.api.answer_text import lead_of, mark_of, otherwise_line, paragraphs, percent, said_of, words_of
from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.api.weighings import WeighResult, headings
from biorag.errors import BioragError, MissingError, UsageError, without_commands
from biorag.faces.server.answer_view import SECTION, AnswerView, answer_view
from biorag.faces.server.asking import Asking, Lend, WorkQueue, answered, question
from biorag.faces.server.bodies import CONDITIONS, ask_body, form_fields, weigh_body
from biorag.faces.server.faults import status_of
from biorag.faces.server.guards import COOKIE, Doorkeeper, is_own
from biorag.faces.server.own_files import OwnFiles
from biorag.faces.session_pool import SessionPool
from biorag.indexes.reading import Overview, overview
from biorag.prompts.grammar import growing_text
from biorag.references.reference import source_line, study_types, telling_types
from biorag.registries import OUTPUTS, TERMINAL
from biorag.utils.text import showable

T = TypeVar("T")
KEPT = 64  # answers, for their exports
PROVISIONAL_SECONDS = 0.25  # between two states of a text that is being written
MORE = ("filter", "options", "k", "answer_anyway")  # fields that are folded within those that are not shown at first
FOLDED = (*CONDITIONS, *MORE, "include_retracted")
Handler = Callable[[Request], Awaitable[Response]]


def _shown(value: Any) -> Any:
    return showable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


TEMPLATES = Environment(
    loader=PackageLoader("biorag.faces.server"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
FORMATS = tuple(name for name in OUTPUTS if name != TERMINAL)
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # no other host's: browsers take "//" and "/\\" for the beginning of one


def sectioned(text: str) -> Markup:
    """Return a text with the labels of a structured abstract, such as "METHODS:", marked."""
    parts = SECTION.split(showable(text))
    return Markup().join(
        Markup(' <b class="section">{}</b>').format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def asking(question: str, **fields: str) -> str:
    """Return the address that asks a question; empty fields are left out."""
    return _address("/ask", {**fields, "question": question})


def weighed_at(fields: Mapping[str, str], **asked: str) -> str:
    """Return the address of the studies of a `claim` or a `question`, of the same index and filters."""
    return _address("/weigh", {**_weighed_fields(fields), **asked})


def _weighed_fields(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: fields[name] for name in ("index", *CONDITIONS, "include_retracted") if name in fields}


def _address(path: str, fields: Mapping[str, str]) -> str:
    return f"{path}?{urlencode({name: value for name, value in fields.items() if value})}"


def day(time: str) -> str:
    """Return the day of a time in ISO 8601, as "24 November 2026"; "" without one."""
    return f"{datetime.fromisoformat(time):%-d %B %Y}" if time else ""


TEMPLATES.filters["study_types"] = study_types
TEMPLATES.globals |= {
    "asking": asking,
    "weighed_at": weighed_at,
    "day": day,
    "sectioned": sectioned,
    "formats": [OUTPUTS[name] for name in reversed(FORMATS)],
    "mark_of": mark_of,
    "words_of": words_of,
    "otherwise_line": otherwise_line,
    "headings": headings,
    "source_line": source_line,
    "lead_of": lead_of,
    "said_of": said_of,
    "paragraphs": paragraphs,
    "percent": percent,
    "without_commands": without_commands,
}


def rendered(template: str, **values: Any) -> str:
    """Return a template filled in."""
    return TEMPLATES.get_template(template).render(**values)


def page(template: str, /, status: int = 200, **values: Any) -> Response:
    """Return a template filled in, as a response."""
    return HTMLResponse(rendered(template, **values), status)


class LastKept(Generic[T]):
    """The last values kept, by unguessable names; `gone` is said of others."""

    def __init__(self, gone: str = "this answer is no longer kept: ask the question again") -> None:
        self._values: dict[str, T] = {}
        self._gone = gone

    def keep(self, value: T) -> str:
        """Keep a value, dropping the oldest of too many; return its name."""
        name = secrets.token_urlsafe(16)
        self._values[name] = value
        if len(self._values) > KEPT:
            del self._values[next(iter(self._values))]
        return name

    def get(self, name: str, *, take: bool = False) -> T:
        """Return a value by its name, dropping it if `take`; raise `MissingError` if it is not kept."""
        if name not in self._values:
            raise MissingError(self._gone)
        return self._values.pop(name) if take else self._values[name]


def page_routes(
    pages: Pages, doorkeeper: Doorkeeper, uploads: Sequence[tuple[str, Handler, str]] = ()
) -> list[BaseRoute]:
    """Return the routes of the page, with those that take files."""
    login = LoginPages(doorkeeper)
    routes: list[tuple[str, Handler, str]] = [
        *uploads,
        ("/", pages.start, "GET"),
        ("/ask", pages.ask, "GET"),
        ("/ask", pages.ask, "POST"),
        ("/weigh", pages.weigh, "GET"),
        ("/files", pages.own_files.open, "GET"),
        ("/answers/{name}/events", pages.events, "GET"),
        ("/answers/{name}/export", pages.export, "GET"),
        ("/login", login.form, "GET"),
        ("/login", login.enter, "POST"),
        ("/logout", login.leave, "POST"),
    ]
    return [Route(path, _explained(handler), methods=[method]) for path, handler, method in routes]


def _explained(handler: Handler) -> Handler:
    """Return a handler whose errors are pages too."""

    async def explained(request: Request) -> Response:
        try:
            return await handler(request)
        except BioragError as error:
            template = "fault.html" if _is_part(request) else "error.html"
            # htmx shows a part only if it came with a status of success.
            status = HTTPStatus.OK if _is_part(request) else status_of(error)
            return page(template, status, sentence=error.public)

    return explained


def _is_part(request: Request) -> bool:
    """Return whether a script of the page asks for a part of it."""
    return request.headers.get("hx-request") == "true"


class Pages:
    """Question, answer, evidence, of any index of a pool; `shown` says what else there is: a log-out, uploads."""

    def __init__(
        self, pool: SessionPool, answering: WorkQueue, judging: WorkQueue, searching: WorkQueue, **shown: bool
    ) -> None:
        self._pool, self._shown = pool, shown
        self._answering, self._judging, self._searching = answering, judging, searching
        self.own_files = OwnFiles(pool, searching)
        self._answers: LastKept[AnswerResult] = LastKept()
        self._waiting: LastKept[Mapping[str, str]] = LastKept()
        # while an index is open, with the time that each is of

    async def start(self, request: Request) -> Response:
        """Show the form, what the index holds, questions to it, and the other indexes."""
        return await self._page(await form_fields(request), None)

    async def ask(self, request: Request) -> Response:
        """Answer a question: as a part of the page or as a whole one; a generator's answer as it is written.

        The address of a question is that of its answer. Followed from another origin it fills in the form only.
        """
        fields = await form_fields(request)
        try:
            body = ask_body(fields)
            if not is_own(request.headers):
                return await self._page(fields, None)
            if _is_part(request) and self._pool.first.settings.generation.llm:
                return page("writing.html", name=self._waiting.keep(fields))
            answer = await answered(request, self._answering, question(self._lending(fields), body))
            view = await self._view(fields, answer)
        except UsageError as error:
            if _is_part(request):
                raise
            return await self._page(fields, None, error)
        return page("answer.html", view=view) if _is_part(request) else await self._page(fields, view)

    async def weigh(self, request: Request) -> Response:
        """Show the studies on either side of a claim, or those that answer a question: as a page, part of one, or CSV.

        Followed from another origin, or without either, it shows the form alone.
        """
        fields = await form_fields(request)
        asked = {name: fields[name] for name in ("question", "claim") if name in fields}
        shown: dict[str, Any] = {"fields": fields, "kept": _weighed_fields(fields), "weighed": None, **self._shown}
        shown |= {"is_question": "question" in asked, "claim": next(iter(asked.values()), ""), "conditions": []}
        shown["is_part"] = _is_part(request)  # of an answer, which cites what is found alone
        if asked and is_own(request.headers):
            body = ask_body(fields) if shown["is_question"] else weigh_body(fields)
            weighed = await answered(request, self._judging, partial(self._weighed, fields))
            if fields.get("format") == "csv":
                return _file(weighed.to("csv"), "studies.csv")
            shown |= {"weighed": weighed, "conditions": body.filter, "csv": weighed_at(fields, **asked, format="csv")}
        return page("studies.html" if shown["is_part"] else "weigh.html", **shown)

    def _weighed(self, fields: Mapping[str, str], _: object) -> WeighResult:
        with self._lending(fields)() as session:
            if "question" not in fields:
                return session.weigh(**weigh_body(fields).arguments())
            body = ask_body(fields)
            return session.studies(body.question, filter=body.filter, include_retracted=body.include_retracted)

    async def events(self, request: Request) -> Response:
        """Show an answer as it is written, then as it was verified."""
        fields = self._waiting.get(request.path_params["name"], take=True)
        return StreamingResponse(self._written(fields), media_type="text/event-stream")

    async def export(self, request: Request) -> Response:
        """Return the sources of an answer in a format."""
        answer = self._answers.get(request.path_params["name"])
        name = request.query_params.get("format", "")
        if name not in FORMATS:
            raise MissingError(f"there is no such format: use one of {', '.join(FORMATS)}")
        return _file(answer.to(name), f"biorag.{OUTPUTS[name].suffix}")

    async def _written(self, fields: Mapping[str, str]) -> AsyncIterator[str]:
        shown = ""
        try:
            with Asking(self._answering, question(self._lending(fields), ask_body(fields))) as asking:
                async for reply in asking.replies(PROVISIONAL_SECONDS):
                    if (text := growing_text(reply)) != shown:
                        shown = text
                        yield _event("provisional", rendered("provisional.html", text=text))
                answer = asking.answer()
            yield _event("checked", rendered("answer.html", view=await self._view(fields, answer)))
        except BioragError as error:
            yield _event("checked", rendered("fault.html", sentence=error.public))
        yield _event("done", "")

    def _lending(self, fields: Mapping[str, str]) -> Lend:
        return partial(self._pool.lend, fields.get("index", ""))

    async def _view(self, fields: Mapping[str, str], answer: AnswerResult) -> AnswerView:
        def made() -> AnswerView:
            with self._lending(fields)() as session:
                matches = session.matches(answer.question.text, answer.hits)
                others = [name for name in self._pool.names() if name != session.name]
                files = self.own_files.links(session, answer.hits)
            shown = {"fields": fields, "conditions": ask_body(fields).filter, "index": session.name, "others": others}
            shown["files"] = files
            return answer_view(fields["question"], answer, self._answers.keep(answer), matches, **shown)

        return await self._searching.run(made)

    async def _page(
        self, fields: Mapping[str, str], view: AnswerView | None, fault: UsageError | None = None
    ) -> Response:
        def made() -> Response:
            with self._lending(fields)() as session:
                shown = session.fact(_overview)
                return page(
                    "start.html",
                    status_of(fault) if fault else HTTPStatus.OK,
                    fault=fault and fault.public,
                    fields=fields,
                    chosen=any(name in fields for name in FOLDED),
                    more=any(name in fields for name in MORE),
                    view=view,
                    index=session.name,
                    indexes=self._pool.listed(),
                    overview=shown,
                    types=telling_types(shown.types),
                    **self._shown,
                )

        return await self._searching.run(made)


def _overview(session: Session) -> Overview:
    with session.stored() as (index, manifest):
        return overview(manifest, index)


def _file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


def _event(name: str, html: str) -> str:
    """Return a server-sent event."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _onward(fields: Mapping[str, str]) -> str:
    """Return the path of this server to which a log-in leads; the first page's for any other address."""
    asked = fields.get("next", "")
    return asked if _PATH.fullmatch(asked) else "/"


class LoginPages:
    """The log-in: a token is exchanged for a cookie."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper

    async def form(self, request: Request) -> Response:
        """Ask for the token."""
        return page("login.html", wrong=False, asks=False, onward=_onward(await form_fields(request)))

    async def enter(self, request: Request) -> Response:
        """Take the token, and lead on to the page that was asked for."""
        fields = await form_fields(request)
        onward = _onward(fields)
        if not self._doorkeeper.knows(fields.get("token", "")):
            return page("login.html", HTTPStatus.UNAUTHORIZED, wrong=True, asks=False, onward=onward)
        response = RedirectResponse(onward, HTTPStatus.SEE_OTHER)
        response.set_cookie(COOKIE, self._doorkeeper.cookie, httponly=True, samesite="strict", path="/")
        return response

    async def leave(self, request: Request) -> Response:
        """Forget the cookie."""
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response
