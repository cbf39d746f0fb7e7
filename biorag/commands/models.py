"""`biorag models`."""

from __future__ import annotations

from biorag.commands import options, show
from biorag.models import finding


def models(as_json: options.Json = False) -> None:
    """List the models on this machine, and how to name others.

    Examples:

      biorag models
      biorag models --json
    """
    starters = (finding.STARTER_ENCODER, finding.STARTER_GENERATOR, finding.STARTER_JUDGE)
    rows = [
        *(
            (f"starter ({model.title})", model.role, str(model.folder() or "not installed"))
            for model in starters
            if model.sha256
        ),
        *((name, "cached", str(path)) for name, path in finding.hub_models().items()),
    ]
    if as_json:
        show.print_json([dict(zip(("name", "role", "path"), row, strict=True)) for row in rows])
        return
    show.table("Models on this machine", ["name", "role", "where"], rows)
    show.out.print(
        "--encoder, --reranker: 'starter', a directory, or a Hugging Face id; --reranker cross:ID for a cross-encoder\n"
        "--llm: 'starter', a .gguf path, hf:OWNER/REPO/FILE.gguf, a server's URL, or 'none'\n"
        "--verifier: a directory, a Hugging Face id, a server's URL, or 'none'"
    )
