"""Finding, opening and making indexes, and checking that they fit encoder and settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from biorag.corpus.sources import DEMO
from biorag.errors import BioragError, MismatchError, MissingError, UsageError, suggestion
from biorag.indexes.manifest import (
    MANIFEST,
    WORDS,
    BlockParameters,
    Bm25Parameters,
    Manifest,
    SourceRecord,
    TokenParameters,
    read_manifest,
)
from biorag.registries import EMBEDDED, STORES
from biorag.settings.index import DEFAULT
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, Index
from biorag.utils.files import make_folder, require_room, timestamp, write_json
from biorag.utils.locks import DirectoryLock
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from biorag.indexes.server import ServerCollection


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Store:
    """The place of one index: its folder under the home, and the server that holds its points, if one does."""

    settings: Settings

    @property
    def folder(self) -> Path:
        """Where the manifest, the lock and an embedded shard lie."""
        return self.settings.indexes / self.settings.index.name

    def manifest(self) -> Manifest | None:
        """Return the index's manifest; None if there is no such index.

        For an index on a server the collection's own manifest counts, the local one only tells where it is. It is
        followed to the server that is asked for, another node or where it has moved to, if the same index lies there.

        Raises `MismatchError` if the manifest is damaged or of another version, or the index lies in another store than
        asked; `ServiceError` if the server does not answer.
        """
        path = self.folder / MANIFEST
        local = read_manifest(path) if path.is_file() else None
        configured = self._configured()
        url = configured.get("url")
        if local and url and local.store.get("url") != url:
            return self._followed(local, configured)
        store = local.store if local and not url else configured
        collection = self.collection(store)
        if collection is None:
            return local
        remote = collection.manifest()
        return replace(remote, store=store) if remote else None

    def _followed(self, local: Manifest, configured: Mapping[str, str]) -> Manifest:
        """Return the manifest of an index that lies at another address now; the local one is kept for it."""
        was, url, name = local.store.get("url"), configured["url"], self.settings.index.name
        collection = self.collection(configured) if was else None
        remote = collection.manifest() if collection else None
        if remote is None or remote.identity != local.identity:
            there = f", where there is {'another' if remote else 'no such'} index" if was else ""
            raise MismatchError(
                f"index {name!r} lies in {was or 'the embedded store'}, not at {url}{there}: choose another --name"
            )
        logger.info("index %r is followed from %s to %s", name, was, url)
        followed = replace(remote, store=configured)
        with suppress(OSError):  # a home that cannot be written
            write_json(self.folder / MANIFEST, followed.to_json())
        return followed

    def require_manifest(self) -> Manifest:
        """Return the index's manifest.

        Raises `MissingError` naming the indexes there are.
        """
        manifest = self.manifest()
        if manifest is None:
            names = index_names(self.settings)
            known = f"there are {', '.join(names)}" if names else "there is none yet"
            name = self.settings.index.name
            if names and "name" not in self.settings.index.model_fields_set:
                raise MissingError(f"which index? Name one of {', '.join(names)}, as in --name {names[0]}")
            raise MissingError(
                f"index {name!r} is not there ({known}){suggestion(name, names)}: make it with 'biorag index CORPUS "
                f"--name {name}', or try the packaged corpus: 'biorag index demo --name {name}'"
            )
        return manifest

    def new_manifest(self, encoder: EncoderIdentity, avg_len: float, tokens: TokenParameters | None = None) -> Manifest:
        """Return the manifest of an index yet to be made, from the configuration."""
        settings, now = self.settings, timestamp()
        return Manifest(
            name=settings.index.name,
            encoder=encoder,
            similarity=similarity_of(settings, None),
            quantized=settings.index.quantize,
            bm25=Bm25Parameters(
                settings.index.bm25_k,
                settings.index.bm25_b,
                round(avg_len, 2),
                terms=settings.index.bm25_terms or WORDS,
            ),
            store=self._configured(),
            created=now,
            updated=now,
            versions=installed_versions(),
            tokens=tokens,
            blocks=blocks_of(settings, None),
            fields={},
        )

    def renewed(self, manifest: Manifest) -> Manifest:
        """Return the manifest of another index as that of this one, in the configured store."""
        return replace(manifest, name=self.settings.index.name, store=self._configured())

    def open(self, manifest: Manifest, writable: bool = False) -> Index:
        """Open the index of a manifest; what is raised is the store's, as in `EdgeIndex`."""
        if collection := self.collection(manifest.store):
            return collection.open(manifest, writable, DirectoryLock(self.folder, exclusive=True) if writable else None)
        if writable:
            make_folder(self.folder)
            require_room(self.folder, 0)
            if not (self.folder / MANIFEST).is_file():
                # Before the shard: a run killed in between must not leave points that nothing describes.
                write_json(self.folder / MANIFEST, manifest.to_json())
        return open_embedded(self.folder, manifest, writable)

    def save(self, manifest: Manifest, brought: Sequence[SourceRecord] = (), gone: Sequence[SourceRecord] = ()) -> None:
        """Write the manifest, atomically; for an index on a server there too, with the sources brought and gone."""
        if collection := self.collection(manifest.store):
            collection.save(manifest, brought, gone)
        write_json(self.folder / MANIFEST, manifest.to_json())

    def check_layout(self, manifest: Manifest | None) -> None:
        """Check that shards, replicas and the place of vectors are those of the index, or of a new one on a server.

        Raises `UsageError` if they are asked of an embedded index, naming the option; `MismatchError` if the index was
        made with others.
        """
        store = manifest.store if manifest else self._configured()
        if STORES[store["kind"]].server:
            if manifest and (collection := self.collection(store)):
                collection.check_layout()
            return
        index = self.settings.index
        for option, asked in (("shards", index.shards), ("replicas", index.replicas), ("on-disk", index.on_disk)):
            if asked:
                raise UsageError(
                    f"--{option} is for an index on a Qdrant server, and {index.name!r} is embedded: name a server "
                    f"with --qdrant, or leave --{option} out"
                )

    def _configured(self) -> Mapping[str, str]:
        """Return the configured store, as a manifest keeps it."""
        services, name = self.settings.services, self.settings.index.store
        urls = {kind.name: getattr(services, kind.server) for kind in STORES.values() if kind.server}
        served = next((kind for kind, url in urls.items() if url), None)
        kind = STORES[name or served or EMBEDDED]
        if served and kind.name != served:
            raise UsageError(
                f"store={kind.name} is not on the server that --{STORES[served].server} names: leave one out"
            )
        if kind.server and not served:
            raise UsageError(f"store={kind.name} is on a server: give its URL with --{kind.server}")
        return {"kind": kind.name, "url": urls[kind.name]} if kind.server else {"kind": kind.name}

    def collection(self, store: Mapping[str, str]) -> ServerCollection | None:
        """Return the collection that holds an index on a server; None for an embedded one."""
        kind = STORES[store["kind"]]
        if not kind.server:
            return None
        server = self.settings.services.server(store["url"], kind.server)
        collection: ServerCollection = kind.load()(server, self.settings)
        return collection


def open_embedded(folder: Path, manifest: Manifest, writable: bool = False) -> Index:
    """Open an index in a folder, in the manifest's store; of one on a server, a scratch copy in the embedded store."""
    kind = STORES[manifest.store["kind"]]
    index: Index = (STORES[EMBEDDED] if kind.server else kind).load()(folder, manifest, writable)
    return index


def index_names(settings: Settings) -> list[str]:
    """Return the names of the indexes under the home."""
    return sorted(path.parent.name for path in settings.indexes.glob(f"*/{MANIFEST}"))


def unnamed_index(settings: Settings) -> str | None:
    """Return the index that is read where none is named: the only one, else `default`; None if neither is there."""
    names = reachable_indexes(settings)
    return names[0] if len(names) == 1 else DEFAULT if DEFAULT in names else None


def reachable_indexes(settings: Settings) -> list[str]:
    """Return the names of the indexes under the home; where a server is named, of those that lie there."""
    return [name for name, _ in _reachable(settings)]


def by_size(settings: Settings) -> list[str]:
    """Return the names of the reachable indexes, the most snippets first and the packaged corpus last.

    The first that can be opened is asked where a request to a server of several indexes names none.
    """
    sizes = {name: manifest.snippets if manifest else 0 for name, manifest in _reachable(settings)}
    return sorted(sizes, key=lambda name: (name == DEMO, -sizes[name], name))


def _reachable(settings: Settings) -> Iterator[tuple[str, Manifest | None]]:
    named, url = manifests(settings), settings.services.qdrant
    return ((name, held) for name, held in named if not url or (held and held.store.get("url") == url))


def manifests(settings: Settings) -> Iterator[tuple[str, Manifest | None]]:
    """Yield the names of the indexes under the home with their manifests; None for a damaged one."""
    for name in index_names(settings):
        try:
            manifest = read_manifest(settings.indexes / name / MANIFEST)
        except BioragError:
            manifest = None
        yield name, manifest


def name_for(corpus: Sequence[str], settings: Settings) -> str:
    """Return the name of the index that an unnamed corpus goes into: `demo` for the packaged one, else `default`.

    Corpora of all other names share `default`, so that `baseline/` and, a day later, `updatefiles/` meet in one index.
    Raises `UsageError` if that is not there, and another one is: which is meant is not clear.
    """
    if list(corpus) == [DEMO] and not Path(DEMO).exists():
        return DEMO
    names = index_names(settings)
    if DEFAULT not in names and (others := [name for name in names if name != DEMO]):
        raise UsageError(f"which index? Give --name with a new name, or with one of {', '.join(others)} to add to it")
    return DEFAULT


def check_encoder(manifest: Manifest, sha256: str, name: str, configuration: Mapping[str, str]) -> None:
    """Check that an encoder makes the vectors that the index was made with: its weights, and all else that counts.

    Of an index that was made before more than the weights was recorded only these are checked.

    Raises `MismatchError` if they differ, naming the part.
    """
    made = manifest.encoder
    if made.sha256 != sha256:
        differing = f"not {name!r} ({sha256[:12]})"
        advice = (
            "its weights have changed, so leave the setting revision out" if made.id == name else "leave --encoder out"
        )
    elif changed := sorted(part for part in made.configuration if made.configuration[part] != configuration.get(part)):
        differing = f"and {name!r} has its weights but another {', '.join(changed)}"
        advice = "name the encoder as it was with --encoder"
    else:
        return
    raise MismatchError(
        f"index {manifest.name!r} was made with encoder {made.id!r} ({made.sha256[:12]}), {differing}: {advice}, or "
        "index under another --name"
    )


def check_settings(manifest: Manifest, settings: Settings) -> None:
    """Check that settings which an index fixes are those asked for now.

    Raises `MismatchError` if the store, the similarity, BM25's terms or the blocks differ, or int8 copies are asked of
    an index that has none.
    """
    index, blocks, store = settings.index, manifest.blocks, manifest.store["kind"]
    split = f"--block-tokens {blocks.tokens} --block-overlap {blocks.overlap}" if blocks else "whole snippets"
    asks_blocks = bool(index.block_tokens) or index.block_overlap is not None
    fixed = {  # by option: whether another is asked for, and how the index was made
        "the setting store": (index.store not in (None, store), f"in the store {store}, not {index.store}"),
        "--quantize": (index.quantize and not manifest.quantized, "without --quantize"),
        "--similarity": (
            index.similarity not in (None, manifest.similarity),
            f"for {manifest.similarity} similarity, not {index.similarity}",
        ),
        "--bm25-terms": (
            index.bm25_terms not in (None, manifest.bm25.terms),
            f"with BM25 over {manifest.bm25.terms}, not {index.bm25_terms}",
        ),
        "--block-tokens and --block-overlap": (
            asks_blocks and blocks_of(settings, None) != blocks,
            f"with {split}",
        ),
    }
    for option, (differs, how) in fixed.items():
        if differs:
            raise MismatchError(
                f"index {manifest.name!r} was made {how}: leave {option} out, or index under another --name"
            )


def similarity_of(settings: Settings, manifest: Manifest | None) -> str:
    """Return the similarity to encode for: the index's own, else the one asked for, else cosine."""
    return manifest.similarity if manifest else settings.index.similarity or "cosine"


def blocks_of(settings: Settings, manifest: Manifest | None) -> BlockParameters | None:
    """Return how documents are split: as the index was made, else as asked, a fifth of a block shared unless told.

    Raises `UsageError` if blocks would share more than half of their tokens, or an overlap is asked of whole documents.
    """
    if manifest:
        return manifest.blocks
    tokens, overlap = settings.index.block_tokens, settings.index.block_overlap
    if overlap is not None and overlap > tokens // 2:
        raise UsageError(f"--block-overlap {overlap}: give at most half of --block-tokens, which is {tokens}")
    return BlockParameters(tokens, tokens // 5 if overlap is None else overlap) if tokens else None
