"""The model card of a training run, from its manifest; no training text stands in it, for it may be private."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

# What a model of a kind does, and the command that uses it.
USES = {
    "retriever": (
        "turns questions and snippets into vectors, whose similarity ranks snippets",
        "index CORPUS --encoder",
    ),
    "reranker": ("ranks the snippets that a first stage found, token by token (ColBERT)", "ask QUESTION --reranker"),
    "cross-encoder": ("reads two texts together", "ask QUESTION --reranker"),
    "reader": ("reads evidence beside a claim or a question", "verify CLAIM --reader"),
    "generator": ("reads evidence and answers by it", "ask QUESTION --llm"),
    "language-model": ("reads biomedical text, for a training to start from", "train retriever ROWS --base"),
    "question-generator": ("writes questions that a snippet answers", "generate queries CORPUS --model"),
}


LEFT_OUT = ("kind", "base_sha256", "settings", "data")


def model_card(name: str, identity: Mapping[str, Any], manifest: Mapping[str, Any], plotted: bool) -> str:
    """Return a card in Markdown, with the keys of the Hugging Face hub above it.

    `identity` and `manifest` are those of the run's `training.json`; `plotted` says whether `curves.png` is there.
    """
    kind = "reader" if identity.get("labels") else identity["kind"]
    (does, command), hardware, loss = USES[kind], manifest["hardware"], manifest["final_loss"]
    keys, origin = "library_name: sentence-transformers\ntags: [biorag, biomedical]", "new weights"
    if "base_sha256" in identity:
        keys = keys.replace("tags", f"base_model: {manifest['base']}\ntags")
        origin = f"`{manifest['base']}`, whose files have the SHA-256 `{identity['base_sha256']}`"
    choices = {key: value for key, value in identity.items() if key not in LEFT_OUT}
    sections = [
        f"---\n{keys}\n---",
        f"# {name}",
        f"A {kind} that {does}. Trained by biorag {manifest['versions'].get('biorag', '')} from {origin}.",
        f"    biorag {command} {name}",
        "## How good it is",
        _result(manifest["best"], identity["data"]),
        *(["![Loss and the chosen figure by step](curves.png)"] if plotted else []),
        "It is for finding and reading literature. What it says was not checked by people, and is no medical advice.",
        "## Data",
        *_data(identity["data"], manifest),
        "## Training",
        f"{manifest['steps']:,} steps of {manifest['batch_size']} rows, {manifest['seconds'] / 60:.1f} minutes on "
        f"{hardware['device']} ({hardware['precision']}, {hardware['cpus']} cores); stopped by "
        f"{manifest['stopped_by']}; last loss {'unknown' if loss is None else f'{loss:.4f}'}.",
        "    " + shlex.join(manifest["command"]),
        _table({**choices, **identity["settings"]}),
        "Versions: " + ", ".join(f"{package} {version}" for package, version in manifest["versions"].items()) + ".",
    ]
    return "\n\n".join(sections) + "\n"


def _result(best: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    if best["value"] is None:
        return "No row was held out, so nothing was measured: `biorag bench retrieval` measures it on your questions."
    return (
        f"{best['metric']} {best['value']:.4f} on {data['validation_rows']:,} held-out rows, at step {best['step']:,}."
    )


def _data(data: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of the rows: how many, their hashes, their sources, and what a guard dropped."""
    counts = f"{data['training_rows']:,} rows (SHA-256 of all together `{data['training_sha256']}`)"
    yield f"{counts}. The licences of their sources hold for what is made of them."
    read = manifest.get("data", {})
    if "files" in read:
        yield "Files: " + ", ".join(f"`{file}`" for file in read["files"]) + "."
    if "sources" in read:
        yield _table({name: sum(targets.values()) for name, targets in read["sources"].items()}, ("source", "rows"))
    if guard := manifest.get("guard"):
        benchmarks = ", ".join(f"`{name}`" for name in guard["benchmarks"])
        yield f"{len(guard['dropped']):,} rows were dropped that match questions of {benchmarks}."


def _table(rows: Mapping[str, Any], head: tuple[str, str] = ("setting", "value")) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join([f"| {' | '.join(head)} |", "|---|--:|", *lines])
