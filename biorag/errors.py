"""Errors shown to users: one sentence each, with the exit code of the command line."""

from collections.abc import Iterable

from biorag.utils.nearest import suggestion


class BioragError(Exception):
    """Base of every error a user may see; the message names the value at fault and the next step.

    `details` are lines shown before the message, where one sentence cannot list all that is at fault.
    """

    exit_code = 1
    details: tuple[str, ...] = ()


class UsageError(BioragError):
    """An option or configuration value that cannot be used."""

    exit_code = 2


class BadInputError(BioragError):
    """Input data that cannot be read: a corpus line, a benchmark file, a prompt template."""

    exit_code = 3


class MissingError(BioragError):
    """An index, model, file or optional package that is not there."""

    exit_code = 4


class MismatchError(BioragError):
    """An index that does not fit the model, or results that do not fit the configuration."""

    exit_code = 5


class ServiceError(BioragError):
    """A server, model or index that failed or is busy."""

    exit_code = 6


class OfflineError(ServiceError):
    """A connection that offline mode refuses."""


class UnsupportedError(BioragError):
    """No answer that the evidence supports, where a script asked to fail then."""

    exit_code = 7


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is not among the keys of a registry; the nearest of them stands last."""
    names = sorted(known)
    return UsageError(f"unknown {kind} {name!r}: use one of {', '.join(names)}{suggestion(name, names)}")
