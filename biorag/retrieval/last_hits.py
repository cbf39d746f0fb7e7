"""The ids of the last hits, kept for `biorag show N`: the index and the ids, never the question."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from biorag.errors import BioragError, MismatchError
from biorag.settings.settings import Settings
from biorag.types import Hit, Label
from biorag.utils.files import make_folder, write_json
from biorag.utils.parsing import parsed_file

logger = logging.getLogger(__name__)


LAST = "last-hits.json"  # in the cache


@dataclass(frozen=True, slots=True)
class LastHits:
    """The index that was searched last, and the ids of its hits by rank."""

    index: Label
    ids: Annotated[tuple[Label, ...], Field(max_length=100_000)]


def keep_last_hits(settings: Settings, hits: Sequence[Hit]) -> None:
    """Keep the ids of hits in a file that only its owner may read; a home that cannot be written to keeps none."""
    path = settings.cache / LAST
    try:
        make_folder(path.parent)
        path.touch(mode=0o600)  # what takes its place may be read by the same
        write_json(path, {"index": settings.index.name, "ids": [hit.snippet.id for hit in hits]})
    except (OSError, BioragError):
        logger.debug("the ids of the hits are not kept for 'biorag show'", exc_info=True)


def last_hits(settings: Settings) -> LastHits | None:
    """Return the last hits; None where none are kept.

    Raises `MismatchError` if the file is damaged.
    """
    hits: LastHits | None = parsed_file(LastHits, settings.cache / LAST, MismatchError, "delete it, and search again")
    return hits
