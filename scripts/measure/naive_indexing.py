"""Index a corpus as one would by hand: sentence-transformers in fp32, `QdrantClient(path=…)` in `$BIORAG_HOME`.

Prints a JSON object of the number of snippets and the seconds that encoding and writing them took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from pathlib import Path

from biorag.benchmarks.latency.peers import QdrantLocal, SentenceTransformers
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources
from biorag.models.finding import find_encoder
from biorag.settings.section import STARTER
from biorag.settings.sources import load_settings

BATCH = 1024  # snippets encoded and written at once, as biorag's own default


def main() -> None:
    """Index the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    home = load_settings({}).home
    (source,) = find_sources([parser.parse_args().corpus], home / "standard-input", home)
    snippets = list(read_snippets(source, refuse))
    encoder = SentenceTransformers(find_encoder(STARTER).path)
    dimension = encoder.encode_snippets([snippets[0].contents]).shape[1]
    started = time.perf_counter()
    with closing(QdrantLocal(Path(home, "qdrant"), dimension, "cosine")) as store:
        for start in range(0, len(snippets), BATCH):
            batch = snippets[start : start + BATCH]
            store.upsert(batch, encoder.encode_snippets([snippet.contents for snippet in batch]))
    seconds = time.perf_counter() - started
    sys.stdout.write(json.dumps({"snippets": len(snippets), "seconds": seconds}))


if __name__ == "__main__":
    main()
