"""A question that is worked on in a thread, while its client is watched: whoever leaves is not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request

from biorag.api.session import Session
from biorag.server.requests import AskBody, GrowingText
from biorag.server.work import WorkQueue
from biorag.types import Answer

WATCH_SECONDS = 1.0  # between two looks at whether the client is still there


class Asking:
    """A question under way; leaving its context gives it up, if it is not answered."""

    def __init__(self, session: Session, answering: WorkQueue, body: AskBody) -> None:
        self._growing = GrowingText()
        self._task = asyncio.ensure_future(answering.run(lambda: body.run(session, self._growing)))
        self._task.add_done_callback(_look_at)

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Let the thread stop where it next can."""
        self._growing.abandoned = True

    async def replies(self, seconds: float) -> AsyncIterator[str]:
        """Yield what the generator has written so far, every so many seconds, until the answer is there."""
        while not (await asyncio.wait({self._task}, timeout=seconds))[0]:
            yield self._growing.reply

    def answer(self) -> Answer:
        """Return the answer, once `replies` has ended.

        Raises
        ------
        BioragError
            As asking does.
        """
        return self._task.result()


def _look_at(task: asyncio.Future[Answer]) -> None:
    """Take note of a fault that nobody waits for, which asyncio would log as forgotten."""
    if not task.cancelled():
        task.exception()


async def answered(request: Request, session: Session, answering: WorkQueue, body: AskBody) -> Answer:
    """Return the answer to a question; it is given up if the client of the request leaves."""
    with Asking(session, answering, body) as asking:
        async for _ in asking.replies(WATCH_SECONDS):
            if await request.is_disconnected():
                asking.abandon()
        return asking.answer()
