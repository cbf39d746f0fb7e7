"""What blocks runs in threads: so many at a time, and so many may wait."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import anyio

from biorag.server.faults import RefusedError

T = TypeVar("T")
RETRY_SECONDS = 5


class WorkQueue:
    """Threads for what blocks, so that the event loop never does.

    Parameters
    ----------
    threads : calls that run at a time
    most : calls that run or wait; a further one is refused
    """

    def __init__(self, threads: int, most: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._most, self._pending = most, 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, once there is one.

        Raises
        ------
        RefusedError
            If too many wait already.
        """
        if self._pending >= self._most:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            sentence = "the server has all the questions that it can take: ask again in a few seconds"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence, headers)
        self._pending += 1
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self._pending -= 1
