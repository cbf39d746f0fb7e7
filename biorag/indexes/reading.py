"""Reading an index: all of it, one document of it, its facts, and an overview for those who ask it first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from biorag.corpus.blocks import ids_of_blocks, joined
from biorag.indexes.manifest import Manifest
from biorag.indexes.records import read_progress
from biorag.indexes.store import Store
from biorag.references.reference import bare_doi, texts
from biorag.types import AnyOf, FieldFilter, Index, IndexQuery, Snippet, Where, block_id
from biorag.utils.files import disk_bytes
from biorag.utils.progress import batched

FETCHED_AT_ONCE = 1000
MOST_OF_PMID = 1000  # snippets of one paper that are listed
PMID_DIGITS = 12  # at most
MOST_FOLDERS = 32  # before a file's name
OVERVIEWED = 4000  # snippets at most
EXAMPLES, LONGEST_EXAMPLE = 3, 90  # questions, and characters of each
MOST_TYPES = 12


def stored_snippets(index: Index) -> Iterator[Snippet]:
    """Yield every snippet of an index, in the order of its ids."""
    for ids in batched(index.ids(), FETCHED_AT_ONCE):
        snippets = index.fetch(ids)
        yield from (snippets[id] for id in ids if id in snippets)


def document(index: Index, id: str) -> Snippet | None:
    """Return a stored snippet by its id, a long document put together of its blocks; None if there is none."""
    if snippet := index.fetch([id]).get(id):
        return snippet
    first = index.fetch([block_id(id, 0)]).get(block_id(id, 0))
    if first is None or first.document != id:
        return None
    ids = ids_of_blocks(first)
    blocks = index.fetch(ids)
    return joined([blocks[id] for id in ids if id in blocks])


def named_snippets(index: Index, name: str, dimension: int) -> list[Snippet]:
    """Return the snippet of an id, else those of a PMID or a DOI; `dimension` is that of the index's dense vectors."""
    parts = name.split("/", MOST_FOLDERS)  # before a file's passage may stand the folders that were indexed
    doi = bare_doi(name)
    for id in [doi, *("/".join(parts[start:]) for start in range(len(parts) if "#" in name else 1))]:
        if snippet := document(index, id):
            return [snippet]
    if name.isascii() and name.isdigit() and len(name) <= PMID_DIGITS:
        where: Where = (FieldFilter("pmid", "=", int(name)),)
    elif doi.startswith("10.") and "/" in doi:
        before = ("", "doi:", "https://doi.org/", "http://doi.org/", "http://dx.doi.org/")  # as records may have it
        where = (AnyOf(tuple((FieldFilter("doi", "=", f"{start}{doi}"),) for start in before)),)
    else:
        return []
    snippets = snippets_where(index, dimension, where, MOST_OF_PMID)
    ids = sorted({snippet.document for snippet in snippets})
    return [snippet for id in ids if (snippet := document(index, id))]


def snippets_where(index: Index, dimension: int, where: Where, most: int) -> list[Snippet]:
    """Return the snippets that fulfil conditions, by id, at most so many."""
    import numpy as np  # which importing the command line must not

    any_vector = np.eye(1, dimension, dtype=np.float32)[0]
    (hits,) = index.search([IndexQuery(any_vector, most, where, exact=True)])
    snippets = index.fetch([hit.id for hit in hits])
    return [snippets[id] for id in sorted(snippets)]


def index_facts(store: Store, manifest: Manifest, index: Index) -> dict[str, Any]:
    """Return the document of `biorag indexes show NAME --json`: the manifest's values and the open index's facts."""
    return {
        **manifest.shown(),
        "snippets": index.count(),
        "deleted_share": index.deleted_share(),
        "bytes": disk_bytes(store.folder),
        "torn": sorted(read_progress(store.folder).torn),
    }


@dataclass(frozen=True, slots=True)
class Overview:
    """What an index holds; all but the number of snippets and the day of the last change is computed from those read.

    `questions` are titles that are questions, the shortest first; `years` the first and the last, None where no snippet
    has one.
    """

    snippets: int
    updated: str
    questions: tuple[str, ...]
    years: tuple[int, int] | None
    types: tuple[str, ...]
    fields: frozenset[str]  # of the metadata


def overview(manifest: Manifest, index: Index) -> Overview:
    """Return the overview of an open index, from its first `OVERVIEWED` snippets."""
    snippets = list(islice(stored_snippets(index), OVERVIEWED))
    years = [year for snippet in snippets if isinstance(year := snippet.metadata.get("year"), int)]
    types = Counter(kind for snippet in snippets for kind in texts(snippet.metadata, "type"))
    titles = {" ".join(snippet.title.split()) for snippet in snippets}
    asking = (title for title in titles if title.endswith("?") and " " in title and len(title) <= LONGEST_EXAMPLE)
    return Overview(
        snippets=index.count(),
        updated=manifest.updated[:10],
        questions=tuple(sorted(asking, key=lambda title: (len(title), title))[:EXAMPLES]),
        years=(min(years), max(years)) if years else None,
        types=tuple(kind for kind, _ in types.most_common(MOST_TYPES)),
        fields=frozenset(name for snippet in snippets for name in snippet.metadata),
    )
