"""`biorag config trust`, `untrust`, `list` and `key`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.errors import MissingError, UsageError
from biorag.settings.settings import SECRETS, URLS
from biorag.settings.sources import DEFAULT_FILE, LARGEST, needing_trust, toml_of
from biorag.settings.trust import Trusted, place_of, trusted, updated
from biorag.utils.network import is_server, without_credentials
from biorag.utils.parsing import read_regular

app = Application(help="Say which files may name servers and models, and keep keys of hosts.")

File = Annotated[
    Path, typer.Argument(help="A configuration file, or the manifest.json of an index on a server.", show_default=True)
]


@app.command()
def trust(
    file: File = DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Let a file name servers, models, files, the home and keys, after showing what it names.

    A configuration file is trusted as it is now: once it changes, run this again. An index is trusted to lie on the
    server that its manifest names.

    Examples:

      biorag config trust

      biorag config trust project/biorag.toml --yes --json
    """
    content = _content(file)
    named = {"url": _server_of(file)} if _is_manifest(file) else needing_trust(toml_of(file, content))
    shown = {name: _shown(name, value) for name, value in named.items()}
    if not as_json:
        show.table(f"{place_of(file)} names", ["setting", "value"], list(shown.items()))
        if not yes and _at_terminal():
            typer.confirm("Trust it?", abort=True, err=True)
    with updated() as changed:
        if _is_manifest(file):
            changed.indexes[place_of(file)] = named["url"]
        else:
            changed.trust(file, content)
    if as_json:
        show.print_json({"file": place_of(file), "names": shown, "trusted": True})
    else:
        show.err.print(f"{place_of(file)} is trusted", soft_wrap=True)


@app.command()
def untrust(file: File = DEFAULT_FILE, as_json: options.Json = False) -> None:
    """Trust a file no more; it may have been deleted.

    Examples:

      biorag config untrust

      biorag config untrust project/biorag.toml --json
    """
    place = place_of(file)
    with updated() as changed:
        if place not in changed.files.keys() | changed.indexes.keys():
            raise MissingError(f"{place} is not trusted: 'biorag config list' shows what is")
        changed.files.pop(place, None)
        changed.indexes.pop(place, None)
    if as_json:
        show.print_json({"file": place, "trusted": False})
    else:
        show.err.print(f"{place} is no longer trusted", soft_wrap=True)


@app.command("list")
def list_trusted(as_json: options.Json = False) -> None:
    """List the files and indexes that are trusted, and the hosts that have a key in the keyring.

    Examples:

      biorag config list

      biorag config list --json
    """
    found = trusted()
    if as_json:
        show.print_json({**asdict(found), "files": {name: _state(found, name) for name in found.files}})
        return
    rows = [
        *(("file", name, _state(found, name)) for name in found.files),
        *(("index", name, without_credentials(url)) for name, url in found.indexes.items()),
        *(("key", host, "") for host in found.keys),
    ]
    show.table("Trusted", ["what", "where", ""], rows)


@app.command()
def key(
    host: Annotated[str, typer.Argument(help="A host, a host and its port, or a server's URL.")],
    delete: Annotated[bool, typer.Option("--delete", help="Delete the key.")] = False,
    as_json: options.Json = False,
) -> None:
    """Keep a host's key in the system's keyring; it is sent to that host alone.

    The key is asked for, or read from standard input. Without a keyring, set the variable that is named.

    Examples:

      biorag config key api.example.org

      biorag config key localhost:8080 --delete --json
    """
    from biorag.settings import keys

    place = keys.checked_host(host)
    if delete:
        keys.forget_key(place)
    else:
        keys.require_keyring(place)  # before the key is typed
        keys.keep_key(place, _asked_key(place))
    if as_json:
        show.print_json({"host": place, "variable": keys.variable_of(place), "kept": not delete})
    else:
        show.err.print(f"the key of {place} is {'deleted' if delete else 'kept in the keyring'}")


def _content(file: Path) -> bytes:
    try:
        return read_regular(file, LARGEST)
    except FileNotFoundError:
        raise MissingError(f"{file} is not there: name a biorag.toml or an index's manifest.json") from None


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _is_manifest(file: Path) -> bool:
    return file.suffix == ".json"


def _server_of(manifest: Path) -> str:
    from biorag.indexes.manifest import read_manifest

    url = read_manifest(manifest).store.get("url", "")
    if not url or not is_server(url):
        raise UsageError(f"{manifest} names no server: an embedded index needs no trust")
    return url


def _shown(name: str, value: Any) -> str:
    if name in SECRETS:
        return "**********"
    return without_credentials(str(value)) if name in (*URLS, "url") else str(value)


def _state(found: Trusted, name: str) -> str:
    try:
        return found.state(Path(name), read_regular(Path(name), LARGEST))
    except OSError:
        return "missing"


def _asked_key(host: str) -> str:
    """Return a key from standard input, unseen where it is typed."""
    asked = typer.prompt(f"Key of {host}", hide_input=True, err=True) if _at_terminal() else sys.stdin.readline()
    text = str(asked).strip()
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("that is not a key: give one line of printable ASCII")
    return text
