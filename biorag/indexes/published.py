"""Published passage embeddings, joined to snippets by id or PMID: NumPy arrays, each beside a list of ids.

`embeds_chunk_0.npy` beside `pmids_chunk_0.json`, as MedCPT's of PubMed are published (Jin et al. 2023), or `NAME.npy`
beside `NAME.json`, `.jsonl` or `.txt`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biorag.errors import BadInputError, MismatchError, MissingError, UsageError
from biorag.indexes.manifest import Manifest
from biorag.indexes.updating import EncodeSnippets
from biorag.models.token_projection import unit
from biorag.settings.settings import Settings
from biorag.types import Encoded, Encoder, Progress, Snippet, Vectors
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.parsing import parse_json, read_regular

logger = logging.getLogger(__name__)

ARRAY = ".npy"
IDS = (".json", ".jsonl", ".txt")
EMBEDS, NAMED_IDS = "embeds", ("pmids", "ids")  # in the name of an array, and in that of its list
FIELDS = ("id", "_id", "pmid")  # of an object in a list of ids
LARGEST = 2 << 30  # bytes of a list of ids
NEAR = 1e-5  # to a length of 1


class _Array(NamedTuple):
    """An array (rows, dimension) that is mapped into memory; its ids, sorted, and the row of each."""

    path: Path
    vectors: NDArray[Any]
    ids: NDArray[np.bytes_]
    rows: NDArray[np.int64]


class PublishedVectors:
    """Vectors of passages by id; counts the snippets that have one, `joined`, and that have none, `lacking`.

    `sha256` is that of the hashes of all files. Raises `MissingError` if an array or its list is not there;
    `BadInputError` if one cannot be read, or they do not fit each other.
    """

    def __init__(self, path: Path, progress: Progress) -> None:
        paths = sorted(path.glob(f"*{ARRAY}")) if path.is_dir() else [path]
        self._arrays, hashes = [], []
        with progress("Reading vectors", len(paths)) as advance:
            for array in paths:
                listed = _list_of(array)
                self._arrays.append(_array(array, listed))
                hashes.append([sha256_of(array), sha256_of(listed)])
                advance(1)
        first = self._arrays[0]
        self.dimension = first.vectors.shape[1]
        if other := next((array for array in self._arrays if array.vectors.shape[1] != self.dimension), None):
            raise BadInputError(
                f"{other.path} has vectors of {other.vectors.shape[1]} numbers and {first.path} of {self.dimension}: "
                "name the arrays of one encoder"
            )
        self.sha256 = sha256_of_json(hashes)
        self.joined = self.lacking = 0

    def of(self, snippets: Sequence[Snippet]) -> tuple[Vectors, list[int]]:
        """Return vectors of snippets, (snippets, dimension), and the positions of those that have none.

        A part of a paper is found by its own id alone: a vector of the paper's PMID is of its title and abstract.
        """
        by_pmid = [str(snippet.pmid) if snippet.pmid and not snippet.location else "" for snippet in snippets]
        rows = self._rows([*(snippet.id for snippet in snippets), *filter(None, by_pmid)])
        vectors, missing = np.zeros((len(snippets), self.dimension), np.float32), []
        for position, (snippet, pmid) in enumerate(zip(snippets, by_pmid, strict=True)):
            row = rows.get(snippet.id) or rows.get(pmid)
            if row is None:
                missing.append(position)
                continue
            vectors[position] = row[0].vectors[row[1]]
            if not np.isfinite(vectors[position]).all():
                raise BadInputError(
                    f"{row[0].path}, row {row[1]} ({snippet.id!r}): a number is not finite: get the file again"
                )
        self.joined += len(snippets) - len(missing)
        self.lacking += len(missing)
        return vectors, missing

    @property
    def counts(self) -> dict[str, int]:
        """How many snippets have a vector, and how many have none and are encoded."""
        return {"published": self.joined, "encoded": self.lacking}

    def _rows(self, names: Sequence[str]) -> dict[str, tuple[_Array, int]]:
        """Return the array and the row of each id; of an id that occurs twice the later row counts."""
        rows = {}
        encoded = {name: name.encode() for name in names}
        for array in self._arrays:
            fitting = [name for name, id in encoded.items() if 0 < len(id) <= array.ids.dtype.itemsize]
            wanted = np.array([encoded[name] for name in fitting], array.ids.dtype)
            last = np.searchsorted(array.ids, wanted, side="right") - 1
            for number in np.flatnonzero((last >= 0) & (array.ids[last] == wanted)):
                rows[fitting[number]] = array, int(array.rows[last[number]])
        return rows


class PublishedEncoding:
    """Takes the vectors of snippets from published ones, of unit length for cosine similarity; encodes the others.

    Raises `MismatchError` if the encoder, which encodes queries too, has vectors of another length.
    """

    parameters = None  # of token vectors, which nobody publishes

    def __init__(self, published: PublishedVectors, encode: EncodeSnippets, encoder: Encoder, similarity: str) -> None:
        if encoder.identity.dimension != published.dimension:
            raise MismatchError(
                f"encoder {encoder.identity.id!r} has vectors of {encoder.identity.dimension} numbers and --vectors of "
                f"{published.dimension}: name the encoder that made them, by --encoder or --query-encoder"
            )
        self.encoder = encoder
        self._published, self._encode, self._similarity = published, encode, similarity

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Return the vectors of snippets."""
        vectors, missing = self._published.of(snippets)
        if self._similarity == "cosine":
            others = np.abs(np.linalg.norm(vectors, axis=1) - 1) > NEAR  # an encoder's own stay to the last bit
            vectors[others] = unit(vectors[others])
        if missing:
            vectors[missing] = self._encode([snippets[position] for position in missing]).vectors
        return Encoded(vectors, [])


def with_published(
    settings: Settings, manifest: Manifest | None, path: Path | None, progress: Progress
) -> tuple[Settings, PublishedVectors | None]:
    """Return settings of an index with published vectors, and these; without a path they stay as they are.

    Raises `UsageError` as `without_tokens`; `MismatchError` if the index was made with other vectors.
    """
    made = manifest.vectors if manifest else None
    if path is None:
        if manifest and made:
            encoder = manifest.encoder.id
            logger.warning("index %r has published vectors: what is new is encoded by %s", manifest.name, encoder)
        return settings, None
    published = PublishedVectors(path, progress)
    if manifest and made != published.sha256:
        held = f"the published vectors {made[:12]}" if made else "vectors of its encoder"
        raise MismatchError(
            f"index {manifest.name!r} has {held}, not {published.sha256[:12]}: leave --vectors out, which encodes what "
            "is new, or index under another --name"
        )
    return without_tokens(settings), published


def without_tokens(settings: Settings) -> Settings:
    """Return the settings of an index of published vectors, which are of whole snippets and of no tokens.

    Raises `UsageError` if blocks or token vectors are asked for.
    """
    if settings.index.block_tokens:
        raise UsageError("published --vectors are of whole snippets: leave --block-tokens out")
    if settings.index.store_tokens not in (None, "none"):
        raise UsageError("token vectors would take encoding every snippet: leave --store-tokens out, or --vectors")
    return settings.replace(store_tokens="none")


def holds_arrays(path: Path) -> bool:
    """Return whether a path names published vectors: an array, or a folder of them."""
    return path.suffix == ARRAY or (path.is_dir() and any(path.glob(f"*{ARRAY}")))


def _list_of(array: Path) -> Path:
    """Return the list of ids beside an array."""
    stems = [array.stem, *(array.stem.replace(EMBEDS, name) for name in NAMED_IDS)]
    lists = [path for stem in dict.fromkeys(stems) for end in IDS if (path := array.with_name(stem + end)).is_file()]
    if not array.is_file():
        raise MissingError(f"{array} is not there: name an array, or a folder of them, with --vectors")
    if not lists:
        raise MissingError(f"{array} has no list of ids beside it: put them in {array.with_suffix(IDS[0]).name}")
    return lists[0]


def _array(array: Path, listed: Path) -> _Array:
    try:
        vectors = np.load(array, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadInputError(f"{array} is not an array of NumPy ({error}): get the file again") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.size:
        raise BadInputError(f"{array} has {vectors.dtype} of shape {vectors.shape}: name floats, a row a passage")
    ids = np.array([id.encode() for id in _ids(listed)], np.bytes_)
    if len(ids) != len(vectors):
        raise BadInputError(f"{array} has {len(vectors):,} rows and {listed.name} {len(ids):,} ids: get both again")
    order = np.argsort(ids, kind="stable")
    return _Array(array, vectors, ids[order], order)


def _ids(path: Path) -> Iterator[str]:
    """Yield the ids of a list: strings, numbers, or objects that have one."""
    content = read_regular(path, LARGEST)
    try:
        if path.suffix == ".txt":
            yield from content.decode().splitlines()
            return
        values = parse_json(content) if path.suffix == ".json" else map(parse_json, content.splitlines())
        for value in values:
            id = next((value[name] for name in FIELDS if name in value), None) if isinstance(value, Mapping) else value
            if not isinstance(id, str | int) or isinstance(id, bool):
                raise ValueError(f"{str(id)[:40]} is no id")
            yield str(id)
    except (ValueError, TypeError) as error:
        raise BadInputError(f"{path} is not a list of ids ({error}): get the file again") from None
