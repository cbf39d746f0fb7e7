"""`biorag models`, and `biorag models convert` and `recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.commands.outputs import FOLDER
from biorag.models import finding


def models(as_json: options.Json = False) -> None:
    """List the models on this machine, and how to name others.

    Examples:

      biorag models
      biorag models --json
    """
    plain, generator = finding.STARTER_ENCODER, finding.STARTER_GENERATOR
    packaged = {
        f"starter ({finding.TRAINED_STARTER.title})": plain,
        f"{finding.PLAIN_STARTER} ({plain.title})": plain,
        f"starter ({generator.title})": generator,
    }
    rows = [
        *((name, model.role, str(model.folder() or "not installed")) for name, model in packaged.items()),
        *((name, "cached", str(path)) for name, path in finding.hub_models().items()),
    ]
    if as_json:
        show.print_json([dict(zip(("name", "role", "path"), row, strict=True)) for row in rows])
        return
    show.table("Models on this machine", ["name", "role", "where"], rows)
    show.out.print(
        "--encoder, --reranker: 'starter', 'minilm', a directory, or a Hugging Face id; --reranker cross:ID for a "
        "cross-encoder\n"
        "--llm: 'starter', a .gguf path, hf:OWNER/REPO/FILE.gguf, a server's URL, or 'none'\n"
        "--reader: a directory, a Hugging Face id, a server's URL, or 'none'"
    )


def recommend(as_json: options.Json = False) -> None:
    """List published models that are worth their size, for machines with a network: figures, sources, commands.

    The figures are published means of nDCG@10 over BEIR's sets, not measured here: measure on your own questions with
    'biorag bench retrieval'.

    Examples:

      biorag models recommend
      biorag models recommend --json
    """
    from biorag.models.published import recommended

    if as_json:
        show.print_json([model.model_dump() for model in recommended()])
        return
    rows = [(model.name, f"{model.parameters} M", model.published, model.needs) for model in recommended()]
    show.table("Published models", ["model", "parameters", "published", "needs"], rows)
    for model in recommended():
        show.out.print(f"\n{model.name} ({model.source})\n  {model.command}", soft_wrap=True)


@expanded
def convert(
    model: Annotated[str, Argument(help="Directory or Hugging Face id with pickled weights (pytorch_model.bin).")],
    out: Annotated[Path, Option(help="New folder for the model with safetensors."), FOLDER],
    as_json: options.Json = False,
) -> None:
    """Convert a model's pickled weights to safetensors, which biorag loads.

    A pickled checkpoint can run code when it is loaded. Here each file is read in a process of its own, within limits
    of time and memory, and nothing but tensors is taken from it.

    Examples:

      biorag models convert doc2query/all-t5-base-v1 --out models/doc2query
      biorag models convert checkpoints/mine --out models/mine --json
    """
    from biorag.models.conversion import convert as converted

    def work() -> dict[str, Any]:
        with show.progress("Files", None) as advance:
            return converted(model, out, advance)

    show.outcome("Converted model", out, work, as_json)
