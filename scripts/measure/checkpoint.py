"""Write a ColBERT checkpoint of the starter encoder that biorag, colbert-ai and PyLate all load.

    python -m scripts.measure.checkpoint CORPUS FOLDER

The projection to 128 dimensions is what training starts from: the principal components of token vectors of the corpus.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources
from biorag.models.finding import find_encoder
from biorag.settings.section import STARTER
from biorag.training.colbert import Lengths, write_base

LENGTHS = Lengths(query=32, passage=256)  # ColBERT's queries, the starter's passages


def main() -> None:
    """Write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    (source,) = find_sources([options.corpus], options.folder / "standard-input", options.folder)
    texts = [snippet.contents for snippet in read_snippets(source, refuse)]
    write_base(find_encoder(STARTER), options.folder, LENGTHS, texts, seed=0)


if __name__ == "__main__":
    main()
