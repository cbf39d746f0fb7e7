"""The model card of a training run, from its manifest; no training text stands in it, for it may be private."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
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
    "question-generator": ("writes questions that a snippet answers", "generate queries CORPUS --model"),
}


def model_card(name: str, identity: Mapping[str, Any], manifest: Mapping[str, Any], plotted: bool) -> str:
    """Return a card in Markdown, with the keys of the Hugging Face hub above it.

    `identity` and `manifest` are those of the run's `training.json`; `plotted` says whether `curves.png` is there.
    """
    kind = "reader" if identity.get("labels") else identity["kind"]
    does, command = USES[kind]
    best, settings = manifest["best"], identity["settings"]
    keys = f"library_name: sentence-transformers\nbase_model: {manifest['base']}\ntags: [biorag, biomedical]"
    parts = [
        f"---\n{keys}\n---",
        f"# {name}",
        f"A {kind} that {does}. Trained by biorag {manifest['versions'].get('biorag', '')} from `{manifest['base']}`, "
        f"whose files have the SHA-256 `{identity['base_sha256']}`.",
        f"    biorag {command} {name}",
        "## How good it is",
        *_result(best, identity["data"]),
        *(["![Loss and the chosen figure by step](curves.png)"] if plotted else []),
        "It is for finding and reading literature. What it says was not checked by people, and is no medical advice.",
        "## Data",
        *_data(identity["data"], manifest),
        "## Training",
        f"{manifest['steps']:,} steps of {manifest['batch_size']} rows, {manifest['seconds'] / 60:.1f} minutes on "
        f"{_hardware(manifest['hardware'])}; stopped by {manifest['stopped_by']}; last loss "
        f"{_figure(manifest['final_loss'])}.",
        "    " + shlex.join(manifest["command"]),
        _table({**{key: value for key, value in identity.items() if key not in LEFT_OUT}, **settings}),
        "Versions: " + ", ".join(f"{package} {version}" for package, version in manifest["versions"].items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


LEFT_OUT = ("kind", "base_sha256", "settings", "data")


def _result(best: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    if best["value"] is None:
        return [
            "No row was held out, so nothing was measured: `biorag bench retrieval` measures it on questions of yours."
        ]
    return [
        f"{best['metric']} {best['value']:.4f} on {data['validation_rows']:,} held-out rows, at step {best['step']:,}."
    ]


def _data(data: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Return what is known of the rows: how many, their hashes, their sources, and what a guard dropped."""
    counts = f"{data['training_rows']:,} rows (SHA-256 of all together `{data['training_sha256']}`)"
    told = [f"{counts}. The licences of their sources hold for what is made of them."]
    if files := manifest.get("data", {}).get("files"):
        told.append("Files: " + ", ".join(f"`{file}`" for file in files) + ".")
    sources = manifest.get("data", {}).get("sources", {})
    told += [_table({name: sum(of.values()) for name, of in sources.items()}, ("source", "rows"))] if sources else []
    if guard := manifest.get("guard"):
        benchmarks = ", ".join(f"`{name}`" for name in guard["benchmarks"])
        told.append(f"{len(guard['dropped']):,} rows were dropped that match questions of {benchmarks}.")
    return told


def _hardware(hardware: Mapping[str, Any]) -> str:
    return f"{hardware['device']} ({hardware.get('precision', '')}, {hardware['cpus']} cores)"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _table(rows: Mapping[str, Any], head: tuple[str, str] = ("setting", "value")) -> str:
    return "\n".join(
        [f"| {' | '.join(head)} |", "|---|--:|", *(f"| {name} | {value} |" for name, value in rows.items())]
    )
