"""`biorag serve`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.errors import MissingError
from biorag.settings.settings import Settings

PANEL = "Server"
TOKEN_VARIABLE = "BIORAG_SERVE_TOKEN"


@expanded
def serve(
    settings: Annotated[
        Settings,
        options.INDEX,
        options.RANKING,
        options.GENERATOR,
        options.ANSWER,
    ],
    host: Annotated[
        str,
        typer.Option(help="Address to listen at; one that other machines reach needs --token.", rich_help_panel=PANEL),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel=PANEL)
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(help=f"Token that clients must show; better set as {TOKEN_VARIABLE}.", rich_help_panel=PANEL),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host", help="Name by which browsers reach this server. Repeatable.", rich_help_panel=PANEL
        ),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder of benchmark runs to browse.", rich_help_panel=PANEL)
    ] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a minute of each client; 0 for no limit.", rich_help_panel=PANEL)
    ] = 600,
    queue: Annotated[
        int, typer.Option(min=1, help="Questions answered or waiting, at most.", rich_help_panel=PANEL)
    ] = 64,
    verifier: options.Verifier = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.", rich_help_panel=PANEL)
    ] = False,
) -> None:
    """Serve a page, a JSON API and an OpenAI-compatible API over an index, until Ctrl-C.

    The page is at the address that is printed, the API under /api (described at /openapi.json), chat completions under
    /v1. Without --token only this machine is answered.

    Examples:

      biorag serve --open

      biorag serve --name pubmed --llm starter -k 10

      BIORAG_SERVE_TOKEN=... biorag serve --host 0.0.0.0 --allowed-host lab.example.org
    """
    from biorag.server.options import Limits, ServeOptions

    token = token or os.environ.get(TOKEN_VARIABLE) or None
    served = ServeOptions(host, port, token, tuple(allowed_host or ()), runs, Limits(rate=rate, queue=queue))
    create_app, listen = _server()
    from biorag.api.session import Session

    show.err.print(f"Opening index {settings.index.name!r} …")

    def ready(address: str) -> None:
        show.err.print(f"biorag is ready at {address} (Ctrl-C ends it)", soft_wrap=True)
        if open_page:
            _open(address)

    with Session(settings, verifier) as session, suppress(KeyboardInterrupt):  # the usual end of a server
        listen(create_app(session, served), served, ready)
    show.err.print("stopped")


def _server() -> tuple[Any, Any]:
    """Return what makes the application and what runs it.

    Raises
    ------
    MissingError
        If the extra is not installed.
    """
    try:
        from biorag.server.app import create_app
        from biorag.server.running import serve as listen
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("biorag"):
            raise
        raise MissingError(f"serve needs the package {error.name!r}: run pip install 'biorag[serve]'") from None
    return create_app, listen


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        show.err.print("no browser was found: open the address yourself")
