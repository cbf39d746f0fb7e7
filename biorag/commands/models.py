"""`biorag models`."""

from __future__ import annotations

from biorag.commands import options, show
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR, STARTER_JUDGE, hub_models

STARTERS = [model for model in (STARTER_ENCODER, STARTER_GENERATOR, STARTER_JUDGE) if model.sha256]


def models(as_json: options.Json = False) -> None:
    """List the models on this machine, and how to name others.

    Examples:

      biorag models
      biorag models --json
    """
    rows = [
        *((f"starter ({model.title})", model.role, str(model.folder() or "not installed")) for model in STARTERS),
        *((name, "cached", str(path)) for name, path in hub_models().items()),
    ]
    if as_json:
        show.print_json([dict(zip(("name", "role", "path"), row, strict=True)) for row in rows])
        return
    show.table("Models on this machine", ["name", "role", "where"], rows)
    show.out.print(
        "--encoder, --reranker: 'starter', a directory, or a Hugging Face id; --reranker cross:ID for a cross-encoder\n"
        "--llm: 'starter', a .gguf path, hf:OWNER/REPO/FILE.gguf, a server's URL, or 'none'\n"
        "--verifier: 'starter', a directory, a Hugging Face id, a server's URL, or 'none'"
    )
