"""`biorag data get`: downloads that break off, the hub's program, and what is left to a person."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

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
    """Serves one file, and breaks each reply off after the bytes of `cuts`; counts the requests."""

    def __init__(self) -> None:
        self.content, self.cuts, self.asked, self.headers = CONTENT, [], 0, {}
        super().__init__()

    def respond(self, method, path, headers, body):
        self.asked += 1
        status = 200 if path in ("/set/file.bin", "/extra.txt") else 404
        length = {"Content-Length": str(len(self.content))}
        return status, self.content[: self.cuts.pop(0)] if self.cuts else self.content, {**length, **self.headers}


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


def test_a_download_that_broke_off_begins_anew_and_leaves_nothing(get, server, file):
    server.cuts = [1_500_000]
    failed(get("file", "--yes", "--json"), 6, "the file broke off", "run the same command again", file)
    assert list(file.parent.iterdir()) == []
    report = done(get("file", "--yes", "--json", sha256=SHA256))
    assert file.read_bytes() == CONTENT
    assert [path.name for path in file.parent.iterdir()] == ["file.bin"], "nothing is left beside it"
    assert [(one["name"], one["path"], one["got"]) for one in report["inputs"]] == [("file", str(file), True)]
    assert done(get("file", "--yes", "--json"))["inputs"] == [], "it is there"


def test_a_download_is_tried_again_within_a_run(get, server, file):
    server.cuts = [100_000, 700_000, 0]
    succeeded(get("file", "--yes", BIORAG_RETRIES=3))
    assert (file.read_bytes(), server.asked) == (CONTENT, 4)


def test_a_file_of_another_hash_is_not_kept(get, server, file):
    failed(get("file", "--yes", "--json", sha256="0" * 64), 5, f"SHA-256 {SHA256[:12]}, not 000000000000 as published")
    assert list(file.parent.iterdir()) == []


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
    assert server.asked == 0


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
