"""Snapshots: what was saved comes back whole under its hashes, and what is no snapshot never gets into place."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.errors import BadInputError, MismatchError, MissingError, UsageError
from biorag.indexes import snapshot
from biorag.indexes.records import HOLDINGS, HeldFile, SourceLedger, read_ledger, write_ledger
from biorag.indexes.store import Store, index_names
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, IndexQuery, Snippet

VECTORS = np.random.default_rng(0).normal(size=(30, 16)).astype(np.float32)
SNIPPETS = [Snippet(f"s{n}", f"Title {n}", f"liver word{n} naïve") for n in range(30)]


def quiet(count: int) -> None:
    pass


def finished(settings: Settings) -> Store:
    """A finished index of the thirty snippets."""
    store = Store(settings)
    manifest = store.new_manifest(EncoderIdentity("hash-encoder", "", "f" * 64, 16), 10.0)
    index = store.open(manifest, writable=True)
    index.upsert(SNIPPETS, VECTORS)
    index.optimize()
    store.save(replace(manifest, snippets=30, complete=True, checksums=index.seal()))
    index.close()
    return store


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Store, Path]:
    """A finished index and its snapshot."""
    home = tmp_path_factory.mktemp("snapshots")
    store = finished(Settings.of(home=home, name="pubmed"))
    saved = snapshot.save(store, home / "pubmed.tar.gz", quiet)
    assert (saved.name, saved.snippets, saved.bytes) == ("pubmed", 30, (home / "pubmed.tar.gz").stat().st_size)
    return store, home / "pubmed.tar.gz"


def answers(settings: Settings) -> tuple[list, dict[str, Snippet]]:
    store = Store(settings)
    index = store.open(store.require_manifest())
    try:
        return index.search([IndexQuery(VECTORS[3], 5), IndexQuery("liver word9", 5)]), index.fetch(
            [s.id for s in SNIPPETS]
        )
    finally:
        index.close()


def nothing_is_left(home: Path) -> bool:
    return not list(home.glob("indexes/*")) and not list(home.glob("loading/*"))


# --- saving and loading


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "other"])
def test_what_was_saved_comes_back(made, tmp_path, name):
    store, file = made
    counted = []
    loaded = snapshot.load(Settings.of(home=tmp_path), name, file, counted.append)
    settings = Settings.of(home=tmp_path, name=name or "pubmed")
    assert (loaded.name, loaded.snippets, loaded.files) == (settings.index.name, 30, sum(counted))
    assert answers(settings) == answers(store.settings)
    assert Store(settings).require_manifest() == replace(store.require_manifest(), name=settings.index.name)
    assert not list(tmp_path.glob("loading/*"))
    index = Store(settings).open(Store(settings).require_manifest(), writable=True)  # and it can be written
    index.upsert([Snippet("new", "", "new")], VECTORS[:1])
    assert index.count() == 31
    index.close()


def test_the_record_of_files_comes_back_and_a_damaged_one_is_refused(made, tmp_path):
    store, bare = made
    kept = SourceLedger({"/papers/a.pdf": HeldFile("a" * 64, ("a.pdf#page=1",))})
    try:
        write_ledger(store.folder, kept)
        snapshot.save(store, tmp_path / "held.tar.gz", quiet)
        (store.folder / HOLDINGS).write_text("{")
        snapshot.save(store, tmp_path / "damaged.tar.gz", quiet)
    finally:
        (store.folder / HOLDINGS).unlink()
    for name, file, ledger in (("held", tmp_path / "held.tar.gz", kept), ("bare", bare, SourceLedger({}))):
        snapshot.load(Settings.of(home=tmp_path), name, file, quiet)
        assert read_ledger(tmp_path / "indexes" / name) == ledger
    with pytest.raises(BadInputError, match=r"holdings\.json cannot be read"):
        snapshot.load(Settings.of(home=tmp_path / "home"), None, tmp_path / "damaged.tar.gz", quiet)
    assert nothing_is_left(tmp_path / "home")


def test_holes_stay_holes(made, tmp_path):
    _, file = made
    snapshot.load(Settings.of(home=tmp_path), None, file, quiet)
    files = [path.stat() for path in (tmp_path / "indexes" / "pubmed").rglob("*") if path.is_file()]
    assert sum(found.st_size for found in files) > 50e6
    assert sum(found.st_blocks * 512 for found in files) < 5e6


def test_an_unfinished_index_and_one_on_a_server_are_not_saved(settings, tmp_path):
    store = Store(settings)
    with pytest.raises(MissingError):
        snapshot.save(store, tmp_path / "s", quiet)
    manifest = store.new_manifest(EncoderIdentity("hash-encoder", "", "f" * 64, 16), 10.0)
    store.open(manifest, writable=True).close()
    with pytest.raises(MismatchError, match="is incomplete or has no checksums: run 'biorag index'"):
        snapshot.save(store, tmp_path / "s", quiet)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("versions", [None, {"qdrant-edge-py": "0.0.1"}])
def test_an_index_of_another_engine_is_not_saved_before_it_is_indexed_again(made, tmp_path, versions):
    _, file = made
    store = Store(Settings.of(home=tmp_path, name="pubmed"))
    snapshot.load(store.settings, None, file, quiet)
    store.save(replace(store.require_manifest(), versions=versions))
    with pytest.raises(MismatchError, match=r"was written by qdrant-edge-py \S+, and .* run 'biorag index'"):
        snapshot.save(store, tmp_path / "s.tar.gz", quiet)
    assert not (tmp_path / "s.tar.gz").exists()


def test_nothing_is_replaced(made, tmp_path):
    _, file = made
    target = tmp_path / "indexes" / "pubmed"
    target.mkdir(parents=True)
    with pytest.raises(UsageError, match="exists already: give another --name, or run 'biorag indexes delete"):
        snapshot.load(Settings.of(home=tmp_path), None, file, quiet)
    assert list(target.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from biorag.settings.settings import Settings
from biorag.indexes import snapshot
left = int(sys.argv[3])
def kill(count):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
snapshot.load(Settings.of(home=Path(sys.argv[1])), None, Path(sys.argv[2]), kill)
"""


@pytest.mark.faults
@pytest.mark.parametrize("after", [1, 25])
def test_a_load_that_is_killed_leaves_no_index_and_the_next_one_succeeds(made, tmp_path, after):
    store, file = made
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(file), str(after)])
    assert ended.returncode == -signal.SIGKILL
    settings = Settings.of(home=tmp_path, name="pubmed")
    assert index_names(settings) == []
    assert list(tmp_path.glob("loading/pubmed/*"))
    snapshot.load(settings, "pubmed", file, quiet)
    assert answers(settings) == answers(store.settings)
    assert not list(tmp_path.glob("loading/*"))


# --- damage and tricks


def parts(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The list and the first files of a snapshot, listed as if they were all."""
    with tarfile.open(file) as archive:
        members = [(member, archive.extractfile(member).read()) for member in archive][:5]
    names = [member.name for member, _ in members[1:]]
    return relisted(members, lambda contents: contents.update(files={name: contents["files"][name] for name in names}))


def packed(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def relisted(members: list[tuple[tarfile.TarInfo, bytes]], change) -> list[tuple[tarfile.TarInfo, bytes]]:
    contents = json.loads(members[0][1])
    change(contents)
    return [(members[0][0], json.dumps(contents).encode()), *members[1:]]


def listing(name: str, size: int = 1):
    """Also list a file of this name."""
    return lambda members: relisted(members, lambda c: c["files"].update({name: {"bytes": size, "sha256": "0" * 64}}))


def first_as(kind: bytes):
    """Let the first file be a link or a folder."""

    def change(members):
        trick = tarfile.TarInfo(members[1][0].name)
        trick.type, trick.linkname = kind, "/etc/passwd"
        return [members[0], (trick, b""), *members[2:]]

    return change


def other_bytes(members):
    return [*members[:3], (members[3][0], members[3][1].swapcase()), *members[4:]]


def no_manifest(members):
    return relisted([members[0], *members[2:]], lambda c: c["files"].pop("manifest.json"))


CRAFTED = [
    *(
        (listing(name), "is not a file of an index")
        for name in ("../out", "/tmp/out", "shard/../../out", "shard//x", "shard/x\0y", "shard", "lock", "")
    ),
    *((first_as(kind), "is not a plain file") for kind in (tarfile.SYMTYPE, tarfile.DIRTYPE)),
    *((listing("manifest.json", size), "bytes, more than it can hold") for size in (2**40, 2**62)),
    (lambda members: [*members, members[-1]], "is not as it is listed"),
    (other_bytes, "has another SHA-256 than is listed"),
    (no_manifest, "it lacks 'manifest.json'"),
    (lambda members: relisted(members, lambda c: c.update(format=3)), "it is of format 3, this biorag reads 1 to 2"),
    (lambda members: members[1:], "it does not begin with snapshot.json"),
    (lambda members: [(members[0][0], b'{"format": 1, "files": []}'), *members[1:]], "snapshot.json cannot be read"),
]


@pytest.mark.faults
@pytest.mark.parametrize("number", range(len(CRAFTED)))
def test_what_is_crafted_is_refused_and_leaves_nothing(made, tmp_path, number):
    change, says = CRAFTED[number]
    crafted = packed(tmp_path / "s", change(parts(made[1])))
    with pytest.raises(BadInputError) as caught:
        snapshot.load(Settings.of(home=tmp_path / "home"), None, crafted, quiet)
    assert str(caught.value).startswith(f"{crafted} is not a complete snapshot (") and says in str(caught.value)
    assert nothing_is_left(tmp_path / "home")


@pytest.mark.faults
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_a_header_with_a_negative_size_or_a_long_name_without_end_is_refused(tmp_path, kind, size):
    """Read literally, a negative size asks for all there is, and a name of gigabytes for as much memory."""
    header = tarfile.TarInfo("snapshot.json")
    header.type, header.size = kind, size
    (tmp_path / "s").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(5 << 20)))
    with pytest.raises(BadInputError, match=r"negative size|not a plain file|its end is missing|does not begin with"):
        snapshot.load(Settings.of(home=tmp_path / "home"), None, tmp_path / "s", quiet)


def test_of_a_snapshot_that_is_cut_the_end_is_missing(made, tmp_path):
    cut = tmp_path / "s"
    cut.write_bytes(made[1].read_bytes()[: made[1].stat().st_size // 2])
    with pytest.raises(BadInputError, match=r"not a complete snapshot \(its end is missing\): copy it again"):
        snapshot.load(Settings.of(home=tmp_path / "home"), None, cut, quiet)


@pytest.mark.faults
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_snapshot_with_a_byte_changed_or_an_end_missing_is_refused_or_the_same(made, tmp_path, data):
    store, file = made
    whole = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        del whole[place:]
    (tmp_path / "s").write_bytes(whole)
    settings = Settings.of(home=tmp_path / "home", name="pubmed")
    try:
        snapshot.load(settings, "pubmed", tmp_path / "s", quiet)
    except BadInputError:
        assert nothing_is_left(tmp_path / "home")
        return
    assert answers(settings) == answers(store.settings)  # in gzip's own header, or after the end
    subprocess.run(["rm", "-r", str(tmp_path / "home")], check=True)


def test_what_is_loaded_is_synced_before_it_takes_its_name(tmp_path, monkeypatch):
    snapshot.save(finished(Settings.of(home=tmp_path / "a", name="pubmed")), tmp_path / "p.tar.gz", quiet)
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda to: synced.add(Path(f"/proc/self/fd/{to}").readlink()) or fsync(to))
    snapshot.load(Settings.of(home=tmp_path), None, tmp_path / "p.tar.gz", quiet)
    index, loading = tmp_path / "indexes" / "pubmed", tmp_path / "loading" / "pubmed"
    files = {loading / path.relative_to(index) for path in (index / "shard").rglob("*") if path.is_file()}
    assert files and files <= synced
