"""Where settings are set: command-line flag, `BIORAG_*` variable, `biorag.toml` (or `--config FILE`), default.

Of a `biorag.toml` that is not trusted, what names servers, models, files or keys does not count. A key goes to the
server that its own source names, else to the one that any source names, and to no other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.settings.keys import PREFIX as KEY_PREFIX
from biorag.settings.keys import variable_of
from biorag.settings.section import ONCE, BoundSecret, Trust, Variable, marked
from biorag.settings.settings import AN_OPTION, PLACES, SECRETS, URLS, Settings, checked
from biorag.settings.trust import place_of, trusted
from biorag.utils.network import is_server, login_apart, origin_of
from biorag.utils.parsing import parse_toml, read_regular

logger = logging.getLogger(__name__)

DEFAULT_FILE = Path("biorag.toml")
PREFIX = "BIORAG_"
LARGEST = 1 << 20  # bytes of a configuration file
KEPT = frozenset(f"{PREFIX}{name.upper()}" for name in (*SECRETS, "offline"))
CREDENTIALS = tuple((kind, f"{kind}_{secret}") for kind in URLS for secret in ("api_key", "login"))


def load_settings(
    flags: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the sources of settings, by their flat names, into checked ones.

    `flags` whose value is None were not given. `file` must exist if named; without it `biorag.toml` of
    the working directory is read if there is one, as far as it is trusted.

    Raises
    ------
    MissingError
        If the named file is not there.
    UsageError
        If a file is not valid TOML, or a setting is unknown or out of range.
    """
    environ = os.environ if environ is None else environ
    sources = {
        str(file or DEFAULT_FILE): _from_file(file),
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
            url = sources[source_of[name]].get(kind) or values.get(kind, PLACES[kind].field.default)
            if isinstance(url, str) and is_server(url):
                values[name] = BoundSecret(secret, origin_of(login_apart(url)[0]))
    return checked(values, source_of)


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    if file is None and not path.is_file():
        return {}
    try:
        content = read_regular(path, LARGEST)
    except FileNotFoundError:
        raise MissingError(f"configuration file {path} does not exist") from None
    values = toml_of(path, content)
    return values if file else _without_untrusted(path, content, values)


def toml_of(path: Path, content: bytes) -> dict[str, Any]:
    """Return the settings of a configuration file.

    Raises
    ------
    UsageError
        If it is not valid TOML.
    """
    try:
        return parse_toml(content, f"configuration file {path}")
    except BadInputError as error:
        raise UsageError(str(error)) from None


def needing_trust(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings that a file which nobody named may set only if it is trusted."""
    guarded = {name: mark for name, place in PLACES.items() if (mark := marked(place.field, Trust))}
    return {name: value for name, value in values.items() if name in guarded and not guarded[name].harmless(value)}


def _without_untrusted(path: Path, content: bytes, values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a file of the current folder, without those that its user did not agree to."""
    left_out = needing_trust(values)
    state = trusted().state(path, content) if left_out else "trusted"
    if state == "trusted":
        return values
    logger.warning(
        "%s %s, so what it sets as %s does not count: read it, then run 'biorag config trust', or give --config %s",
        *(place_of(path), "has changed since it was trusted" if state == "changed" else "is not trusted"),
        *(", ".join(left_out), path),
        extra=ONCE,
    )
    return {name: value for name, value in values.items() if name not in left_out}


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process whose settings are all in its file: credentials, and offline mode.

    A key set beside a server's URL goes under that server's name, since the URL is left out; a login is left out too.
    """
    ours = {name for name in environ if name.startswith(PREFIX) and not name.startswith(KEY_PREFIX)}
    kept = {name: value for name, value in environ.items() if name not in ours - KEPT}
    for kind, name in CREDENTIALS:
        url = environ.get(PREFIX + kind.upper(), "")
        secret = _from_environment(environ).get(name)
        if not secret or not is_server(url):
            continue
        service = marked(PLACES[name].field, Variable)
        for variable in (PREFIX + name.upper(), service.name if service else ""):
            kept.pop(variable, None)
        own = variable_of(origin_of(login_apart(url)[0]))
        if own and name.endswith("_api_key"):
            kept.setdefault(own, secret)
    return kept


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name, place in PLACES.items():
        variable = marked(place.field, Variable)
        value = environ.get(PREFIX + name.upper()) or (variable and environ.get(variable.name))
        if value:
            values[name] = value
    return values
