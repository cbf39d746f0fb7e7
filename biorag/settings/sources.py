"""Where settings come from: command-line flag, `BIORAG_*` variable, configuration file, default.

A key goes to the server that its own source names, else to the one that any source names, and to no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.settings.section import BoundSecret, expanded
from biorag.settings.settings import AN_OPTION, FIELDS, OWN, SECRETS, URLS, Settings, checked
from biorag.utils.files import keep_home, write_text
from biorag.utils.network import is_server, login_apart, origin_of
from biorag.utils.parsing import parse_toml, read_regular
from biorag.utils.text import showable

FILE = "biorag.toml"
TUNED = "biorag tune "  # the beginning of a comment of ours, so that the next one replaces it
PREFIX = "BIORAG_"
LARGEST = 1 << 20  # bytes of a configuration file
KEPT = frozenset(f"{PREFIX}{name.upper()}" for name in (*SECRETS, "offline"))
CREDENTIALS = tuple((kind, f"{kind}_{secret}") for kind in URLS for secret in ("api_key", "login"))


def load_settings(
    flags: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the sources of settings, by their flat names, into checked ones; a flag of None was not given.

    Raises `MissingError` if a file was named and is not there; `UsageError` if it is not valid TOML, or a setting is
    unknown or out of range.
    """
    environ = os.environ if environ is None else environ
    path = configuration_file(file, environ)
    sources = {
        str(path): _from_file(path, required=bool(file or environ.get(f"{PREFIX}CONFIG"))),
        "the environment": _from_environment(environ),
        AN_OPTION: {name.removesuffix("_"): value for name, value in flags.items() if value is not None},
    }
    values: dict[str, Any] = {}
    source_of: dict[str, str] = {}
    for source, settings in sources.items():
        values.update(settings)
        source_of.update(dict.fromkeys(settings, source))
    for kind, name in CREDENTIALS:
        if isinstance(secret := values.get(name), str):
            url = sources[source_of[name]].get(kind) or values.get(kind, FIELDS[kind].field.default)
            if isinstance(url, str) and is_server(url):
                values[name] = BoundSecret(secret, origin_of(login_apart(url)[0]))
    return checked(values, source_of)


def configuration_file(named: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return the configuration file: the named one, else that of `BIORAG_CONFIG`, else `biorag.toml` in the home."""
    environ = os.environ if environ is None else environ
    if chosen := named or environ.get(f"{PREFIX}CONFIG"):
        return Path(chosen)
    return _home(environ) / FILE


def keep_configured(named: Path | None, settings: Settings | None = None) -> None:
    """Keep outputs of users off the configuration file and biorag's own folders, which need no settings to be known."""
    home = settings.home if settings else _home(os.environ)
    keep_home(configuration_file(named), home / FILE, *(home / name for name in OWN))


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return expanded(Path(environ.get(f"{PREFIX}HOME") or user_data_path("biorag")))
    except ValueError as error:
        raise UsageError(f"BIORAG_HOME: {error}") from None


def _from_file(path: Path, required: bool) -> dict[str, Any]:
    if not required and not path.is_file():
        return {}
    try:
        return parse_toml(read_regular(path, LARGEST), f"configuration file {path}")
    except FileNotFoundError:
        raise MissingError(f"configuration file {path} does not exist: check --config and BIORAG_CONFIG") from None
    except BadInputError as error:
        raise UsageError(str(error)) from None


def for_children(environ: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """Return the variables of a process whose settings are all in its file: credentials, and offline mode.

    A key or login set beside a server's URL is left out, unless the settings name that server.
    """
    variables = {name: value for name, value in environ.items() if not name.startswith(PREFIX) or name in KEPT}
    for kind, name in CREDENTIALS:
        url = login_apart(environ.get(PREFIX + kind.upper(), ""))[0]
        if is_server(url) and origin_of(url) != origin_of(str(settings.get(kind, ""))):
            for variable in (PREFIX + name.upper(), FIELDS[name].option.variable):
                variables.pop(variable, None)
    return variables


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name, entry in FIELDS.items():
        if value := environ.get(PREFIX + name.upper()) or environ.get(entry.option.variable):
            values[name] = value
    return values


def write_setting(path: Path, name: str, value: float | int, why: str) -> None:
    """Set `name` in a TOML file, created if needed, with a comment on how the value was chosen before the user's own.

    Raises `UsageError` if the file is not valid TOML, or read-only.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    target = path.resolve()  # a link stays one
    if target.exists() and not target.stat().st_mode & 0o222:
        raise UsageError(f"configuration file {path} is read-only: allow writing, or leave it as it is (--no-write)")
    try:
        document = tomlkit.parse(read_regular(target, LARGEST).decode("utf-8") if target.exists() else "")
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"configuration file {path} is not valid TOML: {error}") from None
    before = document[name].trivia.comment.lstrip("# ") if name in document else ""
    theirs = before.partition(" # ")[2] if before.startswith(TUNED) else before
    item = tomlkit.item(value)
    item.comment(TUNED + " ".join(showable(why).split()) + (f" # {theirs}" if theirs else ""))
    if name in document:
        document[name] = item
    else:
        document.append(name, item)
    write_text(target, tomlkit.dumps(document))
