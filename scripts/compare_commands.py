"""About 200 command lines, recorded with one checkout and compared with another.

    python scripts/compare_commands.py record CHECKOUT OUT.jsonl --home HOME
    python scripts/compare_commands.py compare BEFORE.jsonl AFTER.jsonl

HOME is a BIORAG_HOME with two indexes, `demo` (of the packaged corpus) and `pubmed`; `record` works on a copy of it.
Each line of OUT holds a command line, its exit code and its JSON, without timings and paths, decimals rounded to four.
`compare` prints what differs; messages on stderr are recorded, but not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOLATILE = {"timings_ms", "seconds", "created", "elapsed", "date", "versions", "version", "used", "bytes", "size"}
QUERIES = (
    "GDF15 and appetite", "metformin lactic acidosis", "BRCA1 breast cancer risk",
    "IL-6 blockade in rheumatoid arthritis",
    "vitamin D deficiency", "ACE inhibitor cough", "SGLT2 inhibitors heart failure", "isoniazid neuropathy pyridoxine",
)  # fmt: skip
QUESTIONS = (
    "Why is pyridoxine given with isoniazid?", "How does metformin lower blood glucose?",
    "What is the function of GFRAL?", "Which gene is mutated in cystic fibrosis?", "What causes scurvy?",
    "Is Hirschsprung disease a mendelian or a multifactorial disorder?", "List drugs that inhibit EGFR.",
    "What is the mechanism of action of Teclistamab?", "Does aspirin prevent preeclampsia?",
    "Which plumber repairs pipes on Sundays?",
)  # fmt: skip
CLAIMS = (
    "Metformin lowers hepatic glucose production.", "Metformin raises hepatic glucose production.",
    "Isoniazid interferes with the metabolism of vitamin B6.", "Isoniazid does not interfere with vitamin B6.",
    "Pyridoxine supplements prevent peripheral neuropathy.", "Aspirin cures cystic fibrosis.",
    "GDF15 signals through GFRAL.", "The neuropathy occurs in 90 % of patients.",
)  # fmt: skip
SEARCH_OPTIONS = (
    "--mode bm25", "--mode dense", "--mode hybrid", "--no-rerank -k 10", "--k-init 100 -k 3", "--fusion rrf",
    "--fusion exact --no-rerank", "--filter year>=2015",
)  # fmt: skip
ASK_OPTIONS = ("", "--answer evidence", "-k 3 --no-rerank", "--mode bm25", "-o A=yes -o B=no")
REST = """
info demo --json
info pubmed --json
info demo --fields --json
indexes --json
models --json
show demo_044 --name demo --json
show demo_001 --name demo --json
show nothing --name demo --json
search metformin --name demo --exclude-pmid 1 --json
search metformin --json
ask metformin --json
index demo --name demo --json
indexes rename demo other --yes --json
search metformin --name other --json
indexes rename other demo --yes --json
delete --name demo --id demo_001 --yes --json
search metformin --name demo --json
index demo --name demo --json
data convert nothing in --out out --json
snapshot save snap.tar.gz --name demo --json
snapshot load snap.tar.gz --name loaded --json
search metformin --name loaded --json
indexes delete loaded --yes --json
mine questions --name demo --negatives random --out mined.jsonl --json
mine questions --name demo --negatives bm25 --out bm25.jsonl --json
mine questions --name demo --negatives retriever --out retriever.jsonl --json
bench mirage --name demo --benchmark demo --answer evidence --limit 3 --out mirage --json
bench mirage --name demo --benchmark demo --llm starter --answer score --limit 1 --out mirage2 --json
tune questions --name demo --param lambda --values 0,0.03 --out tuned --no-write --json
tune questions --name demo --param k_init --values 5,20 --out tuned2 --no-write --json
bench retrieval questions --name demo --json
bench retrieval questions --name demo --mode bm25 --json
verify --claims claims.jsonl --name demo --out verdicts.jsonl --json
verify --claims claims.jsonl --name demo --out verdicts.jsonl --json
graph build cites.csv --graph cites --json
graph info --graph cites --json
reproduce bica --json
plan --snippets 1000000 --measure --json
reproduce bica --scale smoke --dry-run --out dry --json
corpus export demo --out exported --json
index papers.jsonl --name mine --json
index papers.jsonl --name mine --json
search alpha --name mine --json
index bad.jsonl --name bad --json
index more.jsonl --name mine --json
info mine --json
ask Why is pyridoxine given with isoniazid? --name demo --llm starter --max-tokens 48 --json
search metformin --name pubmed --mode dense -k 100 --k-init 100 --no-rerank --json

serach x
search
search metformin --mode hybird --json
search metformin --k 0 --json
search metformin --name nothing --json
search metformin --k-init 5 -k 10 --name demo --json
ask --name demo --json
ask why --name demo --option A --json
ask why --name demo -o A=x -o A=y --json
ask why --name demo --filter year>>2 --json
ask why --name demo --filter colour=red --json
ask why --name demo --llm nothing.gguf --json
ask why --name demo --llm http://127.0.0.1:9 --json
ask Which plumber repairs pipes? --name demo --fail-unsupported --json
index nothing.jsonl --json
index --json
index papers.jsonl --name ../x --json
index papers.jsonl --name mine --encoder nothing/at-all --json
index papers.jsonl --name demo --similarity dot --json
bench mirage --benchmark nothing.json --out m --json
bench retrieval nothing --name demo --json
bench nothing
mine nothing.jsonl --negatives random --out m --json
mine questions --name demo --negatives clever --out m.jsonl --json
train retriever nothing.jsonl --base starter --out t --json
merge nothing --method linear --out merged --json
tune questions --name demo --param nothing --out tuned3 --json
ablate nothing.toml --out a --json
verify --name demo --json
verify claim --name demo --snippet nothing --json
reproduce nothing --scale smoke --out r --json
graph info --graph nothing --json
delete --name demo --json
indexes delete nothing --yes --json
snapshot load nothing.tar --json
show --name demo --json
search metformin --name demo --qdrant ftp://x --json
--config nothing.toml search metformin --name demo --json
search metformin --name demo --reranker nothing --json
generate queries --name demo --llm nothing.gguf --out q.jsonl --json
fetch --json
data sample nothing --json
embed nothing --out e --json
run nothing.toml --out r --json
"""
FILES = {
    "claims.jsonl": [{"id": str(number), "claim": claim} for number, claim in enumerate(CLAIMS)],
    "papers.jsonl": [
        {"id": f"p{n}", "title": f"Paper {word}", "content": f"The {word} receptor binds {n} ligands.", "PMID": n}
        for n, word in enumerate(("alpha", "beta", "gamma", "delta"), 1)
    ],
    "more.jsonl": [{"id": "p9", "title": "Paper omega", "content": "The omega receptor.", "PMID": 9}, {"id": "p10"}],
    "bad.jsonl": [{"id": "x"}],
    "questions/queries.jsonl": [{"_id": "1", "text": "why is pyridoxine given with isoniazid"}],
}


def command_lines() -> Iterator[str]:
    """Yield the command lines, `{}` where a sentence stands as one argument."""
    for index, query in enumerate(QUERIES):
        for name in ("demo", "pubmed"):
            for options in SEARCH_OPTIONS[:: 1 if index < 3 else 3]:
                yield f"search {query} --name {name} {options} --json"
    for index, question in enumerate(QUESTIONS):
        for options in ASK_OPTIONS[: None if index < 3 else 1]:
            yield from (f"ask {question} --name {name} {options} --json" for name in ("demo", "pubmed"))
    yield from (f"verify '{claim}' --name demo --json" for claim in CLAIMS)
    yield from (f"verify '{claim}' --name demo --snippet demo_044 --json" for claim in CLAIMS[:4])
    yield from REST[1:-1].split("\n")


def plain(value: Any, root: str) -> Any:
    """Return a JSON value without what two runs of the same code differ in."""
    if isinstance(value, dict):
        return {key: plain(inner, root) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [plain(inner, root) for inner in value]
    if isinstance(value, float):
        return round(value, 4)
    return value.replace(root, "ROOT") if isinstance(value, str) else value


def record(checkout: Path, out: Path, home: Path) -> None:
    """Run the command lines with a checkout's code."""
    with tempfile.TemporaryDirectory() as folder, out.open("w", encoding="utf-8") as stream:
        root = Path(folder)
        shutil.copytree(home, root / "home")
        for name, rows in FILES.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (root / "questions/qrels").mkdir()
        (root / "questions/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tdemo_044\t1\n", encoding="utf-8")
        (root / "cites.csv").write_text("citing,cited\n1,2\n2,3\n1,3\n", encoding="utf-8")
        environment = {
            **os.environ,
            "PYTHONPATH": str(checkout),
            "BIORAG_HOME": str(root / "home"),
            "HF_HUB_OFFLINE": "1",
        }
        for line in command_lines():
            run = subprocess.run(
                [sys.executable, "-m", "biorag", *shlex.split(line)],
                cwd=root, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                printed = plain(json.loads(run.stdout), str(root))
            except ValueError:
                printed = None
            row = {
                "line": line,
                "exit": run.returncode,
                "json": printed,
                "stderr": run.stderr.replace(str(root), "ROOT"),
            }
            stream.write(json.dumps(row) + "\n")
            stream.flush()


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield where two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif before != after:
        yield f"{path}: {json.dumps(before)[:150]} → {json.dumps(after)[:150]}"


def compare(before: Path, after: Path) -> int:
    """Print what differs between two records; return how many command lines do."""
    old, new = ([json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in (before, after))
    changed = 0
    for one, other in zip(old, new, strict=True):
        lines = list(differences({key: one[key] for key in ("line", "exit", "json")}, other))
        lines = [line for line in lines if not line.startswith(".stderr")]
        changed += bool(lines)
        if lines:
            sys.stdout.write(f"biorag {one['line']}\n" + "".join(f"    {line}\n" for line in lines[:8]))
            if one["exit"] != other["exit"]:
                sys.stdout.write(f"    {one['stderr'][-200:]!r}\n    {other['stderr'][-200:]!r}\n")
    sys.stdout.write(f"{len(old)} command lines, {changed} differ\n")
    return changed


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    if options.action == "record":
        record(options.first.resolve(), options.second, options.home)
    else:
        sys.exit(bool(compare(options.first, options.second)))


if __name__ == "__main__":
    main()
