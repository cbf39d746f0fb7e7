"""What an index holds, for one who asks it for the first time: how much, since when, of what, and what to ask."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from biorag.indexes.manifest import Manifest
from biorag.indexes.reading import stored_snippets
from biorag.references.reference import texts
from biorag.types import Index, Snippet

READ = 4000  # snippets at most
EXAMPLES = 3
LONGEST = 90  # characters of an example
MOST_TYPES = 12
PLACES = (".txt", ".md", ".pdf", ".docx", ".html", ".csv")  # endings of titles that are names of files

_NO_TOPIC = re.compile(
    r"\b(?:is|are|was|were|has|have|does|do|did|can|may|should|must|will|not|we|how|why|what|when|which|letter|reply|erratum|"
    r"correction|comments?|editorial|group|committee|reduces?|increases?|improves?|causes?|prevents?|predicts?|lowers?|"
    r"inhibits?|induces?|promotes?|decreases?|enhances?)\b|[.!?;] ",
    re.IGNORECASE,
)
_OF = re.compile(
    r"(?:effects?|role|use|risk|impact|efficacy|safety|prevalence|incidence|management|treatment|prevention|"
    r"diagnosis) of\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Overview:
    """What an index holds; all but the number of snippets and the day of the last change is computed from those read.

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
    types = Counter(kind for snippet in read for kind in texts(snippet.metadata, "type"))
    span = (min(years), max(years)) if years else None
    updated = str(manifest.shown().get("updated") or "")[:10]
    commonest = tuple(kind for kind, _ in types.most_common(MOST_TYPES))
    return Overview(index.count(), updated, examples(read), span, commonest)


def examples(snippets: Iterable[Snippet]) -> tuple[str, ...]:
    """Return questions that snippets answer: titles that are questions, the shortest first, then topics of others."""
    named = {" ".join(snippet.title.split()): snippet.content for snippet in snippets if snippet.title}
    titles = sorted(named, key=lambda title: (len(title), title))
    asked = [title for title in titles if title.endswith("?") and " " in title]
    topics = filter(None, (_topic(title, named[title]) for title in titles if not title.endswith(("?", *PLACES))))
    told = [f"What is known about {topic}?" for topic in topics]
    return tuple([text for text in dict.fromkeys((*asked, *told)) if len(text) <= LONGEST][:EXAMPLES])


def _topic(title: str, content: str) -> str:
    """Return the topic that a title names before its colon, as it stands within a sentence; "" if it names none.

    A title of capitals throughout may be a name, and one with a verb, or of a notice, is no topic.
    """
    topic = title.partition(": ")[0].rstrip(".")
    words = topic.split()
    capitals = sum(word[0].isupper() for word in words[1:])
    if len(words) < 3 or not topic[0].isupper() or 2 * capitals > len(words) or _NO_TOPIC.search(topic):
        return ""
    first = words[0].lower()
    is_name = topic[1:2].isupper() or (words[0] in content and first not in content)
    article = "the " if _OF.match(topic) else ""
    return article + (topic if is_name else topic[0].lower() + topic[1:])
