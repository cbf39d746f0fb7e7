"""Panics of Rust code, Qdrant Edge's or the tokenizers': they are no Exceptions, and print to the process's stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_NAME = "PanicException"  # of its class, which is in no module that could be imported
_STDERR = 2
_TURN = RLock()  # the process has one stderr


class PanicError(Exception):
    """A panic, as an Exception."""


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of Rust code."""
    return type(error).__name__ == _NAME


@contextmanager
def panics_raised() -> Iterator[None]:
    """Raise a panic as `PanicError` without what Rust prints of it; other output to stderr is shown afterwards."""
    with _TURN, tempfile.TemporaryFile() as output:
        sys.stderr.flush()
        stderr = os.dup(_STDERR)
        os.dup2(output.fileno(), _STDERR)
        shown = True
        try:
            yield
        except BaseException as error:
            shown = not is_panic(error)
            if shown:
                raise
            raise PanicError(str(error)) from None
        finally:
            sys.stderr.flush()
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            output.seek(0)
            if shown and (text := output.read()):
                os.write(_STDERR, text)
