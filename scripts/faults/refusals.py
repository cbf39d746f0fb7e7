"""What must be refused: corrupted lines, a truncated corpus, an index that does not fit or has lost a file.

Run as `python -m scripts.faults.refusals --data DATA`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scripts.faults.runs import apart, copy_index, first_snippets, load_libraries, small_encoder, start, turn

LINES, SHARE = 10_000, 0.01
NO_PART = ("lock", "rejects.jsonl")  # files beside an index that nothing depends on


class Commands:
    """biorag in a home of its own; `run` gives the exit code, what was said, and the JSON document if there is one."""

    def __init__(self, work: Path) -> None:
        self.home, self.said = work / "home", work / "said.txt"

    def run(self, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        """Run a command to its end."""
        code = start(arguments, self.home, self.said, fresh=False).wait()
        text = self.said.read_text(errors="replace")
        document = json.JSONDecoder().raw_decode(text[text.index("{") :])[0] if "{\n" in text else {}
        return code, text, document


def corrupted(path: Path, draw: random.Random) -> int:
    """Corrupt one line in a hundred in one of six ways; return how many."""
    lines = path.read_bytes().splitlines()
    chosen = draw.sample(range(len(lines)), round(SHARE * len(lines)))
    ways: list[Callable[[bytes], bytes]] = [
        lambda line: line[: len(line) // 2],
        lambda line: b"\xff\xfe" + line,
        lambda line: line.replace(b'"id"', b'"no id"', 1),
        lambda line: b"[" + line + b"]",
        lambda line: b"null",
        lambda line: line[:-1] + b', "PMID": "unknown"}',
    ]
    for place in chosen:
        lines[place] = draw.choice(ways)(lines[place])
    path.write_bytes(b"\n".join(lines) + b"\n")
    return len(chosen)


def measure_lines(commands: Commands, work: Path, data: Path, encoder: str) -> dict[str, Any]:
    """Count what is rejected, what a truncated gzip gives, and what the same file three times gives."""
    corpus = work / "lines.jsonl"
    first_snippets(data, LINES, corpus)
    whole = corpus.read_bytes()
    count = corrupted(corpus, random.Random(0))
    asked = ["--encoder", encoder, "--name", "lines", "--json"]
    stopped = commands.run("index", str(corpus), *asked)[0]
    counts = []
    for _ in range(3):
        code, said, report = commands.run("index", str(corpus), *asked, "--on-bad-line", "skip")
        assert code == 0, said
        counts.append((report["rejected"], report["snippets"], report["added"], report["updated"]))
    rejects = (commands.home / "indexes" / "lines" / "rejects.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in rejects]
    packed = gzip.compress(whole, 1)
    codes = []
    for way in ("stop", "skip"):
        for share in (0.1, 0.5, 0.9, 1 - 4 / len(packed)):
            (work / "cut.jsonl.gz").write_bytes(packed[: int(share * len(packed))])
            arguments = ["--encoder", encoder, "--name", f"cut-{way}", "--on-bad-line", way]
            codes.append(commands.run("index", str(work / "cut.jsonl.gz"), *arguments)[0])
    return {
        "lines": LINES,
        "corrupted": count,
        "exit_code_without_skip": stopped,
        "rejected_in_each_of_three_runs": [found[0] for found in counts],
        "with_a_reason": sum(bool(row["reason"]) for row in rows),
        "snippets_after_each_run": [found[1] for found in counts],
        "added_or_updated_by_the_second_and_third": [found[2] + found[3] for found in counts[1:]],
        "exit_codes_of_truncated_gzip": codes,
    }


def damages(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each way in which an index can be damaged, with what does it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in NO_PART)
    for path in files:
        name = str(path.relative_to(folder))
        yield f"{name} removed", path.unlink
        if path.stat().st_size:
            yield f"{name} cut in half", lambda path=path: _cut(path)
        if any(path.read_bytes()):
            yield f"{name} zeroed", lambda path=path: path.write_bytes(bytes(path.stat().st_size))
    yield "shard removed", lambda: shutil.rmtree(folder / "shard")
    for key, value in [("format", 2), ("format", "1"), ("format", None), ("encoder", None), ("store", {"kind": "x"})]:
        yield f"manifest with {key} {value}", lambda key=key, value=value: _edit(folder, {key: value})
    yield "manifest with another dimension", lambda: _edit_encoder(folder, {"dimension": 7})
    yield "manifest with another encoder's hash", lambda: _edit_encoder(folder, {"sha256": "0" * 64})


def _cut(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)


def _edit(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _edit_encoder(folder: Path, changes: dict[str, Any]) -> None:
    held = json.loads((folder / "manifest.json").read_text())["encoder"]
    _edit(folder, {"encoder": {**held, **changes}})


def measure_damage(commands: Commands, work: Path, encoders: tuple[str, str]) -> dict[str, Any]:
    """Search an index that is damaged in each way, and one with another encoder; count what is refused."""
    first_snippets_of = work / "lines.jsonl"
    small = work / "small.jsonl"
    small.write_text("".join(first_snippets_of.read_text(errors="replace").splitlines(keepends=True)[:20]))
    asked = ["index", str(small), "--encoder", encoders[0], "--name", "damaged", "--on-bad-line", "skip"]
    assert commands.run(*asked)[0] == 0, commands.said.read_text()
    folder, whole = commands.home / "indexes" / "damaged", work / "whole"
    copy_index(folder, whole)
    search = ["search", "asthma", "--name", "damaged", "--no-rerank", "--json"]
    assert commands.run(*search)[0] == 0
    tried, codes, failures = 0, dict[str, int](), []
    ways = [name for name, _ in damages(folder)] + ["another encoder", "an encoder of another dimension"]
    for place, name in enumerate(ways):
        shutil.rmtree(folder)
        copy_index(whole, folder)
        extra: list[str] = []
        if name == "another encoder":
            extra = ["--encoder", "starter"]
        elif name == "an encoder of another dimension":
            extra = ["--encoder", encoders[1]]
        else:
            list(damages(folder))[place][1]()
        code, said, _ = commands.run(*search, *extra)
        tried += 1
        codes[str(code)] = codes.get(str(code), 0) + 1
        one_sentence = said.startswith("error: ") and said.count("\n") == 1
        if code not in (4, 5, 6) or not one_sentence:
            failures.append({"damage": name, "code": code, "said": said[-300:]})
    return {"damages": tried, "refused": tried - len(failures), "exit_codes": codes, "not_refused": failures}


def main() -> None:
    """Measure, and fail if anything that must be refused was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with pubmed/snippets.jsonl.gz")
    parser.add_argument("--lock", type=Path, help="lock file to hold")
    options = parser.parse_args()
    load_libraries()
    with tempfile.TemporaryDirectory(prefix="biorag-refusals-") as name, turn(options.lock):
        work = Path(name)
        commands = Commands(work)
        encoders = tuple(apart(lambda size=size: str(small_encoder(work / f"m{size}", size))) for size in (64, 128))
        lines = measure_lines(commands, work, options.data, encoders[0])
        damage = measure_damage(commands, work, (encoders[0], encoders[1]))
    sys.stdout.write(json.dumps({"lines": lines, "damage": damage}, indent=2) + "\n")
    right = lines["rejected_in_each_of_three_runs"] == [lines["corrupted"]] * 3
    raise SystemExit(not right or 0 in lines["exit_codes_of_truncated_gzip"] or bool(damage["not_refused"]))


if __name__ == "__main__":
    main()
