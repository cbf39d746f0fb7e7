"""What an open index holds and was made with."""

from __future__ import annotations

from typing import Any

from biorag.indexes.manifest import Manifest
from biorag.indexes.progress import read_progress
from biorag.indexes.reading import stored_fields
from biorag.indexes.store import Store
from biorag.types import Index
from biorag.utils.files import disk_bytes


def index_facts(store: Store, manifest: Manifest, index: Index) -> dict[str, Any]:
    """Return its manifest's values, and what only the open index tells, as `biorag info NAME --json` prints them."""
    return {
        **manifest.shown(),
        "snippets": index.count(),
        "deleted_share": index.deleted_share(),
        "bytes": disk_bytes(store.folder),
        "torn": sorted(read_progress(store.folder).torn),
        "metadata": stored_fields(index)._asdict(),
    }
