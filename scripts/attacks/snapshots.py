"""A snapshot made to do harm: its list, its headers, its parts, sizes that nothing holds, parts that fit their list.

python -m scripts.attacks.snapshots --cases 300 --out snapshots.json
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from scripts.attacks.harness import Case, clean, damaged, draws, index_of, main, mutated

NAMES = ("../x", "/tmp/x", "shard/../x", "shard/a/b/" + "c/" * 200 + "d", "shard/" + "n" * 300, "shard//x", "lock", "")
SIZES = (-1, 0, 1, 2**20, 2**33, 2**40, 2**62, 2**63, 2**64, 10**30)
Members = list[tuple[str, bytes]]
Change = Callable[[random.Random, bytes], bytes]


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases: as many of each kind."""
    index_of(work)
    if not (work / "saved.tar.gz").is_file():
        clean(["snapshot", "save", "saved.tar.gz"], work)
    for number, draw in draws(count, seed, "snapshots"):
        kind = draw.choice(sorted(KINDS))
        yield Case(f"{number} {kind}", partial(_made, KINDS[kind], random.Random(draw.getrandbits(64)), work))


def _made(
    change: Callable[[random.Random, bytes], bytes], draw: random.Random, work: Path, folder: Path
) -> Sequence[str]:
    (folder / "s.tar.gz").write_bytes(change(draw, (work / "saved.tar.gz").read_bytes()))
    return ("snapshot", "load", "s.tar.gz", "--json", *draw.choice(((), ("--name", "other"))))


def raw(draw: random.Random, content: bytes) -> bytes:
    """Damage the file as it is."""
    return damaged(draw, content)


def unpacked(draw: random.Random, content: bytes) -> bytes:
    """Damage what is in the gzip, in its first headers mostly."""
    tar = gzip.decompress(content)
    end = draw.choice((512, 4096, 65536))
    return _zipped(damaged(draw, tar[:end]) + tar[end:])


def listed(draw: random.Random, content: bytes) -> bytes:
    """Change the list of parts."""
    members = _members(content)
    contents = json.loads(members[0][1])
    kind = draw.choice(("mutated", "mutated", "name", "size", "many"))
    if kind == "mutated":
        return _packed([(members[0][0], mutated(draw, contents)), *members[1:]])
    files = contents["files"]
    old = draw.choice(list(files))
    if kind == "name":
        files[draw.choice(NAMES)] = files.pop(old)
    elif kind == "size":
        files[old]["bytes"] = draw.choice(SIZES)
    else:
        files |= {f"shard/{n}": {"bytes": 2**30, "sha256": "0" * 64} for n in range(draw.choice((1000, 200_000)))}
    return _packed([(members[0][0], json.dumps(contents).encode()), *members[1:]])


def headers(draw: random.Random, content: bytes) -> bytes:
    """Give a member another type, a size that it does not have, or many long names before it."""
    members = _members(content)
    place = draw.randrange(len(members))
    stream = io.BytesIO()
    for number, (name, part) in enumerate(members):
        header = tarfile.TarInfo(name)
        header.size = len(part)
        if number == place:
            header.type = bytes(draw.choice("01234567LKxgS"), "ascii")
            header.size = draw.choice((len(part), *[size for size in SIZES if abs(size) < 2**63]))
            header.linkname = draw.choice(("", "/etc/passwd", "../../x"))
            for _ in range(draw.choice((0, 1, 20_000))):
                long = tarfile.TarInfo("././@LongLink")
                long.type, long.size = tarfile.GNUTYPE_LONGNAME, 100
                stream.write(long.tobuf(tarfile.GNU_FORMAT) + b"a" * 100 + bytes(412))
        stream.write(header.tobuf(tarfile.GNU_FORMAT) + part + bytes(-len(part) % 512))
    return _zipped(stream.getvalue() + bytes(1024))


def bomb(draw: random.Random, content: bytes) -> bytes:
    """Put gigabytes of zeros, which take kilobytes, after the start or in a part that is listed."""
    members = _members(content)
    contents = json.loads(members[0][1])
    size = draw.choice((2**30, 2**33))
    name = draw.choice(list(contents["files"]))
    if draw.random() < 0.5:
        contents["files"][name] = {"bytes": size, "sha256": "0" * 64}
    header = tarfile.TarInfo(name)
    header.size = size
    start = tarfile.TarInfo(members[0][0])
    text = json.dumps(contents).encode()
    start.size = len(text)
    beginning = start.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512) + header.tobuf(tarfile.GNU_FORMAT)
    return _zipped(beginning) + gzip.compress(bytes(2**24), 1) * draw.choice((1, 8))


def fitting(draw: random.Random, content: bytes) -> bytes:
    """Change a part of the index, and make every hash fit it: what is left to notice it is the engine."""
    parts = dict(_members(content)[1:])
    small = [name for name in parts if name.startswith("shard/") and len(parts[name]) < 1 << 20]
    name = draw.choice([*small, "manifest.json", "manifest.json"])
    change = mutated(draw, json.loads(parts[name])) if name.endswith(".json") else damaged(draw, parts[name])
    parts[name] = change
    if name != "manifest.json":
        checksums = json.loads(parts["checksums.json"])
        hashed = hashlib.sha256(change).hexdigest()
        checksums[name] = (
            {"json": _json_hash(change)} if name.endswith(".json") else {"bytes": len(change), "sha256": hashed}
        )
        parts["checksums.json"] = json.dumps(checksums).encode()
        manifest = json.loads(parts["manifest.json"])
        manifest["checksums"] = hashlib.sha256(parts["checksums.json"]).hexdigest()
        parts["manifest.json"] = json.dumps(manifest).encode()
    contents = json.loads(_members(content)[0][1])
    contents["files"] = {
        name: {"bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()} for name, part in parts.items()
    }
    return _packed([("snapshot.json", json.dumps(contents).encode()), *parts.items()])


def _json_hash(content: bytes) -> str | None:
    try:
        return hashlib.sha256(json.dumps(json.loads(content), sort_keys=True).encode()).hexdigest()
    except (ValueError, RecursionError):
        return None


def _members(content: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


def _packed(members: Members) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, part in members:
            header = tarfile.TarInfo(name)
            header.size = len(part)
            archive.addfile(header, io.BytesIO(part))
    return _zipped(stream.getvalue())


def _zipped(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


KINDS: dict[str, Change] = {
    "raw": raw,
    "unpacked": unpacked,
    "listed": listed,
    "headers": headers,
    "bomb": bomb,
    "fitting": fitting,
}

if __name__ == "__main__":
    main("snapshots", cases)
