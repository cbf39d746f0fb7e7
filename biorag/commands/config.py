"""`biorag config list` and `biorag config key`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.application import Application
from biorag.errors import UsageError
from biorag.settings import keys
from biorag.settings.sources import configuration_file

app = Application(help="Keep the keys of servers, and show where settings come from.")


@app.command("list")
def list_configuration(ctx: typer.Context, as_json: options.Json = False) -> None:
    """Show which configuration file is read, and which hosts have a key in the keyring.

    Examples:

      biorag config list
      biorag config list --json
    """
    file, hosts = configuration_file(ctx.obj["config"]), keys.hosts_in_keyring()
    if as_json:
        show.print_json({"file": str(file), "exists": file.is_file(), "keys": hosts})
        return
    rows = [("file", str(file), "" if file.is_file() else "does not exist"), *(("key", host, "") for host in hosts)]
    show.table("Configuration", ["what", "where", ""], rows)


@app.command()
def key(
    host: Annotated[str, typer.Argument(help="A host, a host and its port, or a server's URL.")],
    delete: Annotated[bool, typer.Option("--delete", help="Delete the key.")] = False,
    as_json: options.Json = False,
) -> None:
    """Store the key of a host in the system's keyring; it is sent to that host alone.

    The command asks for the key, or reads it from standard input. Without a keyring it names the variable to set.

    Examples:

      biorag config key api.example.org
      biorag config key localhost:8080 --delete --json
    """
    name = keys.checked_host(host)
    if delete:
        keys.forget_key(name)
    else:
        keys.keep_key(name, lambda: _asked_key(name))
    if as_json:
        show.print_json({"host": name, "variable": keys.variable_of(name), "kept": not delete})
    else:
        show.err.print(f"the key of {name} is {'deleted' if delete else 'in the keyring'}")


def _asked_key(host: str) -> str:
    """Return a key from standard input, unseen where it is typed."""
    typed = sys.stdin.isatty()
    answer = typer.prompt(f"Key of {host}", hide_input=True, err=True) if typed else sys.stdin.readline()
    text = str(answer).strip()
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("that is not a key: give one line of printable ASCII")
    return text
