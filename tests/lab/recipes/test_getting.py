"""`biorag data get`: downloads that break off and resume, the hub's program, and what is left to a person."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from biorag.lab.recipes.downloading import part_of
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import load_recipe
from tests import cli
from tests.cli import done, failed, succeeded
from tests.loopback import Loopback

CONTENT = bytes(range(256)) * 9_000  # 2.3 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RECIPE = """
title = "A recipe of files"
[inputs.file]
what = "a file"
get = "{url}/set/file.bin"
licence = "CC0"
gigabytes = {gigabytes}
sha256 = "{sha256}"
[inputs.page]
what = "a set behind a form"
get = "{url}/form.html: sign in"
[inputs.extra]
what = "a file that may be left out"
get = "{url}/extra.txt"
option = "--prompt"
[inputs.hub]
what = "a set of the hub"
get = "hf download org/set --repo-type dataset --include 'chunk/*' --local-dir {{data}}/hub"
[backbones.starter]
model = "minilm"
[scales.full]
about = "all"
backbone = "starter"
[scales.full.inputs]
file = "{{data}}/set/file.bin"
page = "{{data}}/page"
extra = "{{data}}/extra.txt"
hub = "{{data}}/hub/chunk"
[[steps]]
name = "index"
run = "index demo --name {{name}}"
"""


class FileServer(Loopback):
    """Serves one file with `If-Range`, and breaks each reply off after the bytes of `cuts`; keeps the requests."""

    def __init__(self) -> None:
        self.content, self.cuts, self.asked = CONTENT, [], []
        self.headers = {"ETag": '"one"'}
        super().__init__()

    def respond(self, method, path, headers, body):
        self.asked.append(headers)
        status, start, more = 200, 0, {}
        asked = headers["Range"]
        if path not in ("/set/file.bin", "/extra.txt"):
            status, start = 404, len(self.content)
        elif asked and headers["If-Range"] in (None, self.headers.get("ETag")):
            status, start = 206, int(asked.removeprefix("bytes=").removesuffix("-"))
            end = len(self.content) - 1
            more = {"Content-Range": f"bytes {start}-{end}/{len(self.content)}"}
        body = self.content[start:]
        length = {"Content-Length": str(len(body))}
        return status, body[: self.cuts.pop(0)] if self.cuts else body, {**length, **self.headers, **more}


@pytest.fixture
def server():
    with closing(FileServer()) as started:
        yield started


@pytest.fixture
def get(tmp_path, server):
    """Run `biorag data get` with the recipe above; what it gets goes into the folder `data`."""

    def get(*words: object, sha256: str = "", gigabytes: float = 0.1, **variables: object):
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(RECIPE.format(url=server.url, sha256=sha256, gigabytes=gigabytes))
        words = ("data", "get", recipe, *words, "--data", tmp_path / "data")
        return cli.invoke(*words, **{"BIORAG_RETRIES": 0, **variables})

    return get


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "data" / "set" / "file.bin"


def ranges(server: FileServer) -> list[tuple[str | None, str | None]]:
    return [(headers["Range"], headers["If-Range"]) for headers in server.asked]


def test_a_download_that_broke_off_is_resumed_by_the_next_run(get, server, file):
    server.cuts = [1_500_000]
    failed(get("file", "--yes", "--json"), 6, "the file broke off", "which resumes", file)
    assert not file.exists()
    assert part_of(file).read_bytes() == CONTENT[:1_500_000]
    report = done(get("file", "--yes", "--json"))
    assert file.read_bytes() == CONTENT
    assert [path.name for path in file.parent.iterdir()] == ["file.bin"], "nothing is left beside it"
    assert ranges(server) == [(None, None), ("bytes=1499999-", '"one"')]
    assert [(one["name"], one["path"], one["got"]) for one in report["inputs"]] == [("file", str(file), True)]
    assert done(get("file", "--yes", "--json"))["inputs"] == [], "it is there"


def test_a_download_is_tried_again_within_a_run(get, server, file):
    server.cuts = [100_000, 700_000, 0]
    succeeded(get("file", "--yes", BIORAG_RETRIES=3))
    assert file.read_bytes() == CONTENT
    assert [asked for asked, _ in ranges(server)] == [None, "bytes=99999-", "bytes=799998-", "bytes=799997-"]


@pytest.mark.parametrize(
    ("headers", "part", "sha256", "asked"),
    [
        ({"ETag": 'W/"weak"'}, CONTENT[:1_000_000], SHA256, ("bytes=999999-", None)),
        ({"ETag": 'W/"weak"'}, CONTENT[::-1][:1_000_000], "", (None, None)),  # no version, no hash: it begins anew
        ({"ETag": '"one"'}, CONTENT, SHA256, (f"bytes={len(CONTENT) - 1}-", None)),  # killed after the last byte
    ],
)
def test_a_part_is_resumed_only_if_it_is_known_to_be_of_the_file(get, server, file, headers, part, sha256, asked):
    server.headers = headers
    file.parent.mkdir(parents=True)
    part_of(file).write_bytes(part)
    succeeded(get("file", "--yes", sha256=sha256))
    assert file.read_bytes() == CONTENT
    assert ranges(server) == [asked]


def test_a_part_of_a_file_that_has_changed_since_is_dropped(get, server, file):
    server.cuts = [1_000_000]
    get("file", "--yes")
    server.content, server.headers = CONTENT[::-1], {"ETag": '"two"'}
    succeeded(get("file", "--yes"))
    assert file.read_bytes() == CONTENT[::-1]


def test_a_file_of_another_hash_is_not_kept(get, server, file):
    failed(get("file", "--yes", "--json", sha256="0" * 64), 5, f"SHA-256 {SHA256[:12]}, not 000000000000 as published")
    assert not file.exists()
    assert part_of(file).read_bytes() == b""


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({"Content-Type": "text/html; charset=utf-8"}, "a page, not a file"),
        ({"Content-Encoding": "gzip"}, "compressed"),
    ],
)
def test_what_is_not_the_file_is_not_kept(get, server, file, headers, part):
    server.headers = headers
    failed(get("file", "--yes", "--json"), 6, part, f"or put the file at {file} by hand")
    assert not file.exists()


def test_what_cannot_be_got_is_one_sentence(get, server, tmp_path, file):
    failed(get("fil", "--json"), 2, "unknown input 'fil'", "did you mean file?")
    failed(get("--scale", "cpu", "--json"), 2, "unknown scale 'cpu'")
    failed(get("file", "--json"), 2, "no terminal to ask 'Get file, 0.1 GB?'", "--yes")
    failed(get("file", "--json", "--yes", gigabytes=1e9), 6, "is full", "1,000,000,000,0")
    failed(get("file", "--yes", "--json", BIORAG_OFFLINE=1), 6, "offline: 127.0.0.1 is not named")
    assert server.asked == []


def test_what_is_left_to_a_person_is_told(get, server, tmp_path):
    result = succeeded(get("--dry-run"))
    assert [line.split("\t")[:4] for line in result.stdout.splitlines()[2:]] == [
        ["file", "0.1", "CC0", "download"],
        ["page", "unknown", "", "by hand"],
        ["hub", "unknown", "", "hub"],
    ]
    assert f"page, by hand: put it at {tmp_path / 'data' / 'page'}; {server.url}/form.html: sign in" in result.stderr
    assert not (tmp_path / "data").exists()
    succeeded(get("extra", "--yes"))
    assert (tmp_path / "data" / "extra.txt").read_bytes() == CONTENT, "what may be left out is got if it is named"


class Hub(Loopback):
    """A hub with one data set of three files, of which it does not give those in `broken`."""

    def __init__(self) -> None:
        self.files = {
            "chunk/a.jsonl": b'{"id": "a"}\n',
            "chunk/b.jsonl": b'{"id": "b"}\n',
            "README.md": b"not asked for",
        }
        self.broken, self.is_up = set(), True
        super().__init__()

    def respond(self, method, path, headers, body):
        if not self.is_up or (method == "GET" and path.rpartition("/")[2] in self.broken):
            return 404, b"", {}
        if "/tree/" in path:
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            return 200, json.dumps(rows).encode(), {"Content-Type": "application/json"}
        if path.startswith("/api/"):
            values = {"id": "org/set", "sha": "1" * 40}
            return 200, json.dumps(values).encode(), {"Content-Type": "application/json"}
        content = self.files[path.partition(f"/resolve/{'1' * 40}/")[2].replace("%2F", "/")]
        return 200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": "1" * 40}


def missing(recipe, data: Path) -> list[str]:
    return [wanted.name for wanted in RecipePlan(recipe, "full", Choices(data)).missing()]


@pytest.mark.slow
def test_a_set_of_the_hub_is_there_once_its_program_has_ended_well(get, tmp_path):
    data, chunk = tmp_path / "data", tmp_path / "data" / "hub" / "chunk"
    with closing(Hub()) as hub:
        run = partial(get, "hub", "--yes", "--json", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0", HF_HOME=tmp_path / "hf")
        hub.broken = {"b.jsonl"}
        failed(run(), 6, "'hf download org/set", "ended with code", "run the same command again")
        chunk.mkdir(exist_ok=True)  # the other file may be there
        recipe = load_recipe(tmp_path / "recipe.toml")
        assert "hub" in missing(recipe, data), "a step would read half of it"
        hub.is_up = False
        failed(run(), 6, "the hub does not give what 'hf download org/set")
        hub.broken, hub.is_up = set(), True
        assert [one["got"] for one in done(run())["inputs"]] == [True]
    assert sorted(path.name for path in chunk.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert "hub" not in missing(recipe, data)
