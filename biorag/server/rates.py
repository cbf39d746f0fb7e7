"""How often each client may ask: token buckets, of which only so many are kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS = 10_000


class RateLimiter:
    """Lets each client make `rate` requests a minute, all at once or over time; 0 for no limit."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def wait(self, client: str) -> float:
        """Count a request; return 0, or the seconds after which the client may ask again."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, since = self._buckets.pop(client, (float(self._rate), now))
        left = min(float(self._rate), left + (now - since) * self._rate / 60)
        granted = left >= 1
        self._buckets[client] = (left - granted, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - left) * 60 / self._rate
