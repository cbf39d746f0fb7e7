"""Questions in threads: a bounded number runs, a bounded number waits, and one whose client leaves is given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Generic, TypeVar

import anyio
from starlette.requests import Request

from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.faces.chat.followups import in_turn, standalone
from biorag.faces.server.bodies import AskBody
from biorag.faces.server.faults import RefusedError
from biorag.utils.http import GivenUpError, given_up

T = TypeVar("T")
Grow = Callable[[str], None]  # takes a generator's reply so far
Lend = Callable[[], AbstractContextManager[Session]]  # lends an open index
RETRY_SECONDS = 5


class WorkQueue:
    """Threads for blocking calls: `threads` run at a time, and more than `most` running or waiting are refused."""

    def __init__(self, threads: int, most: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._most, self._pending = most, 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, once there is one; raise `RefusedError` if too many wait already."""
        if self._pending >= self._most:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            sentence = "the server has all the questions that it can take: ask again in a few seconds"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence, headers)
        self._pending += 1
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self._pending -= 1


class Asking(Generic[T]):
    """A call, such as a `question`, in a thread of a queue; leaving the context abandons it, unless it has ended."""

    def __init__(self, queue: WorkQueue, call: Callable[[Grow], T]) -> None:
        self._call = call
        self._reply, self._gone = "", threading.Event()
        self._is_begun = False
        self._task = asyncio.ensure_future(queue.run(self._ask))
        # A fault that nobody waits for is not logged as forgotten once it was looked at.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def __enter__(self) -> Asking[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Leave the queue, or let the thread stop where it next can, also in a request to a generator's server."""
        self._gone.set()
        if not self._is_begun:
            self._task.cancel()

    async def replies(self, seconds: float) -> AsyncIterator[str]:
        """Yield the generator's reply so far, every so many seconds, until there is an answer."""
        while not (await asyncio.wait({self._task}, timeout=seconds))[0]:
            yield self._reply

    async def unless(self, left: Awaitable[None]) -> None:
        """Wait for the end, and abandon the call once `left` has come, so that its place is free at once."""
        leaving = asyncio.ensure_future(left)
        try:
            await asyncio.wait({self._task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                self.abandon()
                await asyncio.wait({self._task})
        finally:
            leaving.cancel()

    def answer(self) -> T:
        """Return the answer once `replies` has ended, or raise the error of asking; `GivenUpError` if abandoned."""
        if self._task.cancelled():
            raise GivenUpError("the question was given up before its turn")
        return self._task.result()

    def grow(self, reply: str) -> None:
        """Take a reply so far; raise `GivenUpError` if nobody waits for it."""
        if self._gone.is_set():
            raise GivenUpError("nobody waits for the answer any more")
        self._reply = reply

    def _ask(self) -> T:
        self._is_begun = True
        with given_up(self._gone):
            self.grow("")
            return self._call(self.grow)


def question(lend: Lend, body: AskBody, earlier: Sequence[tuple[str, str]] = ()) -> Callable[[Grow], AnswerResult]:
    """Return what answers a question, after `earlier` questions as they were typed, each with its answer."""

    def call(grow: Grow) -> AnswerResult:
        asked = body.arguments()
        text, after, said = (asked.pop(name) for name in ("question", "after", "said"))
        with lend() as session:
            for typed, answer in earlier:
                after, said = standalone(session, typed, after, said), answer
            searched = standalone(session, text, after, said)
            return in_turn(session.ask(searched, **asked, on_text=grow), text, searched, said)

    return call


async def answered(request: Request, queue: WorkQueue, call: Callable[[Grow], T]) -> T:
    """Return what a call returns; it is given up if the client of the request leaves."""
    with Asking(queue, call) as asking:
        await asking.unless(_left(request))
        return asking.answer()


async def _left(request: Request) -> None:
    """Return once the client of a request, whose body was read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
