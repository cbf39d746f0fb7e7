"""The rates at which this machine encodes and loads, on a sample of a corpus."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import find_sources
from biorag.engine import encoder_files, snippet_encoders
from biorag.errors import BadInputError
from biorag.indexes.estimating import timed_sample
from biorag.indexes.store import Store
from biorag.indexes.surveying import SAMPLE
from biorag.indexes.token_vectors import token_files
from biorag.models.loading import best_device
from biorag.models.resources import model_size
from biorag.models.tokens import token_spans
from biorag.scale.machine import GIGABYTE, MachineKind, Rates
from biorag.scale.planning import LOADING, LOADING_PLAIN
from biorag.settings.settings import Settings
from biorag.utils.cores import usable_cores

AVERAGE = 86.0  # BM25 terms of a passage, for vectors that nothing searches


def measure(settings: Settings, corpus: Sequence[str]) -> MachineKind:
    """Return this machine with its rates of encoding and loading, on the first snippets of a corpus.

    Without a GPU, the encoding is that of a worker on each core, by the CPU time of a snippet.

    Raises
    ------
    BadInputError
        If the corpus has no snippet, or a bad line.
    """
    with tempfile.TemporaryDirectory(prefix="biorag-plan-") as folder:
        sources = find_sources(corpus, Path(folder) / "standard-input", settings.home)
        readings = (read_snippets(source, refuse) for source in sources)
        sample = list(islice(chain.from_iterable(readings), SAMPLE))
    if not sample:
        raise BadInputError("the corpus has no snippet to measure with: name another, or leave CORPUS out")
    files, cores, gpus = encoder_files(settings, None), usable_cores(), int(best_device() == "cuda")
    settings = settings.replace(similarity=settings.index.similarity or files.similarity() or "cosine")
    token_model = token_files(settings, None, files)
    encode = snippet_encoders(settings, files, token_model, settings.index.similarity or "", None, None, sample)
    manifest = Store(settings).new_manifest(encode.encoder.identity, AVERAGE, encode.parameters)
    timed = timed_sample(manifest, sample, encode)
    size, spans = model_size(files), token_spans(files)
    tokens = [min(size.window, len(spans(snippet.contents))) for snippet in sample]
    encoding = len(sample) / timed.encoding if gpus else cores * len(sample) / timed.encoding_cpu
    loading = LOADING if manifest.tokens else LOADING_PLAIN
    measured = Rates.model_validate(
        {
            "cores": cores,
            "multiplied": size.multiplied,
            "tokens": round(float(np.mean(tokens)), 1),
            "encode_snippets_per_second": _rounded(encoding),
            loading: _rounded(len(sample) / timed.writing),
        }
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineKind(
        name="this machine",
        cores=cores,
        memory_gb=round(memory / GIGABYTE, 1),
        disk_gb=max(0.1, round(shutil.disk_usage(Path.cwd()).free / GIGABYTE, 1)),
        gpus=gpus,
        rates=measured,
    )


def _rounded(rate: float) -> float:
    """Return a rate in four digits."""
    return float(f"{rate:.4g}")
