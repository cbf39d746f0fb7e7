"""The nearest of the names there are to one that is not among them."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.6  # of difflib's ratio: below, words are not alike
SHORTEST = 3  # letters of a word that another may begin with

# What users call a thing, and what it is called here; each counts only where such a name is known.
SYNONYMS = {
    "add": ("index",),
    "answer": ("ask",),
    "benchmark": ("bench",),
    "build": ("index", "build"),
    "candidates": ("k_init",),
    "collection": ("name",),
    "eval": ("bench",),
    "evaluate": ("bench",),
    "find": ("search",),
    "finetune": ("train",),
    "generator": ("llm",),
    "index": ("name",),
    "index_name": ("name",),
    "ingest": ("index",),
    "list": ("info",),
    "lr": ("learning_rate",),
    "ls": ("info",),
    "lexical": ("bm25",),
    "max_results": ("k",),
    "model": ("llm", "encoder", "base"),
    "n": ("k",),
    "output": ("out",),
    "output_dir": ("out",),
    "query": ("search",),
    "question": ("ask",),
    "retrieve": ("search",),
    "semantic": ("dense",),
    "sparse": ("bm25",),
    "top": ("k",),
    "top_k": ("k",),
    "topk": ("k",),
    "vector": ("dense",),
    "where": ("filter",),
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that a user most likely meant; None where none is like the word.

    Case, leading dashes, and the difference between `-` and `_` do not count.
    """
    from difflib import get_close_matches

    names = {_plain(name): name for name in known}
    plain = _plain(word)
    if not plain:
        return None
    alike = [plain, *SYNONYMS.get(plain, ())]
    alike += [name for name in sorted(names, key=len) if len(plain) >= SHORTEST and name.startswith(plain)]
    alike += get_close_matches(plain, names, 1, CUTOFF)
    return next((names[name] for name in alike if name in names), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the end of a message; empty where no known name is like the word."""
    name = nearest(word, known)
    return f" (did you mean {name}?)" if name else ""


def _plain(name: str) -> str:
    return name.lstrip("-").casefold().replace("-", "_")
