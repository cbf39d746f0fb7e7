"""What an index holds, for one who asks it for the first time: how much, since when, of what, and what to ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from biorag.indexes.manifest import Manifest
from biorag.indexes.reading import stored_snippets
from biorag.types import Index, Snippet

READ = 4000  # snippets at most
EXAMPLES = 3
LONGEST = 90  # characters of an example
MOST_TYPES = 12
PLACES = (".txt", ".md", ".pdf", ".docx", ".html", ".csv")  # endings of titles that are names of files


@dataclass(frozen=True, slots=True)
class Overview:
    """What an index holds; all but the number of its snippets and the day of its last change is of those read.

    `years` are the first and the last, None where no snippet has one.
    """

    snippets: int
    updated: str
    questions: tuple[str, ...]
    years: tuple[int, int] | None
    types: tuple[str, ...]


def overview(manifest: Manifest, index: Index) -> Overview:
    """Return the overview of an open index, from its first `READ` snippets."""
    read = list(islice(stored_snippets(index), READ))
    years = [year for snippet in read if isinstance(year := snippet.metadata.get("year"), int)]
    types = Counter(kind for snippet in read for kind in _texts(snippet.metadata.get("type")))
    span = (min(years), max(years)) if years else None
    updated = str(manifest.shown().get("updated") or "")[:10]
    commonest = tuple(kind for kind, _ in types.most_common(MOST_TYPES))
    return Overview(index.count(), updated, examples(read), span, commonest)


def examples(snippets: Iterable[Snippet]) -> tuple[str, ...]:
    """Return questions that snippets answer: titles that are questions, the shortest first, then others made one."""
    named = {" ".join(snippet.title.split()) for snippet in snippets if snippet.title}
    titles = sorted(named, key=lambda title: (len(title), title))
    asked = [title for title in titles if title.endswith("?") and " " in title]
    told = [
        f"What is known about {title[0].lower() if title[1:2].islower() else title[0]}{title[1:].rstrip('.')}?"
        for title in titles
        if title[0].isupper() and title.count(" ") >= 2 and not title.endswith(("?", *PLACES))
    ]
    return tuple([text for text in (*asked, *told) if len(text) <= LONGEST][:EXAMPLES])


def _texts(value: object) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
