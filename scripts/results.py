"""Measure the figures of README.md and docs/results, store them, and write them into these pages.

    python -m scripts.results DATA [NAME ...]     # measure all, or those that are named, and write the pages
    python -m scripts.results                     # write the pages from what is stored

DATA holds pubmed/, bioasq/ with golden/, pubmedqa/ and scifact/. Each measurement is stored as soon as it is made, with
its command lines. A page holds what is written into it between `<!-- figures: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.blocks import with_blocks
from scripts.measure.processes import Finished, run

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs/results/figures.json"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs/results").glob("*.md")))
QUESTIONS = ROOT / "tests/answering/demo_questions.jsonl"
HOME = Path("bench-results/results")  # indexes and reports, kept from one measurement to the next
ROUNDS = 5  # of a cold start
PIPELINES = {
    "BM25": "--mode bm25 --no-rerank",
    "dense": "--mode dense --no-rerank",
    "hybrid, reciprocal rank fusion": "--fusion rrf --no-rerank",
    "hybrid, dense + λ·BM25": "--no-rerank",
    "hybrid + late-interaction reranking": "",
}
SETS = {"bioasq": "pubmed", "pubmedqa": "pubmed", "scifact": "scifact"}  # questions, and the index they are asked of
SHOWN = ("nDCG@10", "success@5", "R@100")
COLD = {
    "`search`": "search 'GDF15 and appetite' --name pubmed",
    "`ask`, the extract": "ask 'What is the function of GFRAL?' --name pubmed",
    "`search --mode bm25 --no-rerank`": "search 'GDF15 and appetite' --name pubmed --mode bm25 --no-rerank",
}
LATENCY = "bench latency --name pubmed --questions {data}/bioasq --repetitions 60 --seconds 8 --index-limit 1500"

Figures = Mapping[str, Any]


class Program:
    """The program under measurement: its commands in a home of its own, and what was typed."""

    def __init__(self, data: Path, home: Path = HOME) -> None:
        self.data = data
        self._environment = {**os.environ, "BIORAG_HOME": str(home.resolve())}
        self.typed: list[str] = []

    def __call__(self, line: str) -> Finished:
        """Run a command line; raises `RuntimeError` if it fails."""
        self.typed.append(f"biorag {line.format(data='DATA')}")
        words = [word.format(data=self.data) for word in shlex.split(line)]
        sys.stderr.write(f"biorag {' '.join(words)}\n")
        return run([sys.executable, "-m", "biorag", *words], self._environment)

    def json(self, line: str) -> dict[str, Any]:
        """Return the JSON document that a command prints."""
        return dict(json.loads(self(f"{line} --json").stdout))

    def indexed(self, source: str, name: str) -> None:
        """Make sure that there is an index, of the untrained encoder: the starter knows most of the questions."""
        self(f"index {source} --name {name}{' --encoder minilm' * (name != 'demo')}")


def measure_retrieval(program: Program) -> Figures:
    """Measure every pipeline on every set of questions."""
    program.indexed("{data}/pubmed/snippets.jsonl.gz", "pubmed")
    program.indexed("{data}/scifact/corpus.jsonl.gz", "scifact")
    return {
        label: {
            name: _chosen(program.json(f"bench retrieval {{data}}/{name} --name {index} {options}".rstrip())["metrics"])
            for name, index in SETS.items()
        }
        for label, options in PIPELINES.items()
    }


def measure_bioasq(program: Program) -> Figures:
    """Measure the challenge's batches of 2020 by its own measures."""
    program.indexed("{data}/pubmed/snippets.jsonl.gz", "pubmed")
    batches = " ".join(f"{{data}}/bioasq/golden/8B{n}_golden.json.gz" for n in range(1, 6))
    report = program.json(f"bench bioasq {batches} --name pubmed --out {HOME}/bioasq")
    systems = {
        system: {
            "MAP": [batch["documents"]["MAP"] for batch in values["batches"]],
            "mean": values["mean"]["documents"]["MAP"],
            "GMAP": values["mean"]["documents"]["GMAP"],
        }
        for system, values in report["systems"].items()
    }
    kept = ("ours", "theirs", "difference", "low", "high", "p_value")
    return {"systems": systems, "comparisons": [{key: each[key] for key in kept} for each in report["comparisons"]]}


def measure_speed(program: Program) -> Figures:
    """Measure indexing, cold starts and the stages of a question, on this machine."""
    with tempfile.TemporaryDirectory() as home:
        report = Program(program.data, Path(home)).json(
            "index {data}/pubmed/snippets.jsonl.gz --name pubmed --encoder minilm"
        )
    indexing = {"snippets": report["snippets"], "seconds": report["seconds"]}
    program.indexed("{data}/pubmed/snippets.jsonl.gz", "pubmed")
    cold = {}
    for label, line in COLD.items():
        program(line)  # the page cache, and what is made once
        costs = [program(line).cost for _ in range(ROUNDS)]
        cold[label] = {key: statistics.median(getattr(c, key) for c in costs) for key in ("wall_s", "cpu_s", "peak_mb")}
    latency = program.json(LATENCY)
    machine, stages = latency["machine"], latency["stages"]
    one = {"encoding": stages["encode_queries"]["1"]}
    one |= {f"first stage, {mode}": stages["first_stage"][mode]["1"] for mode in ("bm25", "dense", "hybrid")}
    one |= {"fetching 20 snippets": stages["fetch"], "reranking": stages["rerank"]}
    one["all"] = stages["total_without_generator"]
    return {
        "machine": f"{machine['cores']} cores of an {machine['cpu']} ({', '.join(machine['flags'])})",
        "indexing": indexing | {"bytes_per_snippet": latency["index"]["bytes_per_snippet"]},
        "cold": cold,
        "question": {label: {key: stage[key] for key in ("p50", "p95")} for label, stage in one.items()},
    }


def measure_demo(program: Program) -> Figures:
    """Ask what the demonstration corpus covers: for the extract, and for the starter generator's answer."""
    program.indexed("demo", "demo")
    rows: dict[str, Any] = {}
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        words = f"ask {shlex.quote(asked['question'])} --name demo"
        extract, reply = program.json(words), program.json(f"{words} --llm starter --no-cache")
        is_own = reply["answerer"] == "generate" and not reply["abstained"]
        rows[asked["question"]] = {
            "found": asked["phrase"] in extract["answer"],
            "starter": reply["answer"] if is_own else "",
            "withheld": reply["abstained"],
            "supported": [sentence["verdict"] == "supported" for sentence in reply["sentences"]],
        }
    return rows


def _chosen(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in SHOWN}


MEASURED: dict[str, Callable[[Program], Figures]] = {
    "retrieval": measure_retrieval,
    "bioasq": measure_bioasq,
    "demo": measure_demo,
    "speed": measure_speed,
}


def retrieval_table(stored: Figures) -> str:
    """Return the table of pipelines."""
    header = ["pipeline", "options"]
    header += [f"{label} {name}" for label in ("BioASQ", "PubMedQA", "SciFact") for name in SHOWN[:2]]
    rows = []
    for label, by_set in stored["retrieval"].items():
        options = f"`{PIPELINES[label]}`" if PIPELINES[label] else "(the default)"
        rows.append([label, options, *(f"{by_set[name][key]:.3f}" for name in SETS for key in SHOWN[:2])])
    return _table(header, rows)


def bioasq_table(stored: Figures) -> str:
    """Return the tables of systems by batch, and of their differences."""
    figures = stored["bioasq"]
    header = ["MAP@10", *(f"8B{n}" for n in range(1, 6)), "mean", "GMAP, mean"]
    rows = [
        [name, *(f"{value:.3f}" for value in (*values["MAP"], values["mean"], values["GMAP"]))]
        for name, values in figures["systems"].items()
    ]
    compared = [
        [
            f"{each['ours']} against {each['theirs']}",
            f"{each['difference']:+.3f}",
            f"{each['low']:+.3f} to {each['high']:+.3f}",
            f"{each['p_value']:.3f}" if each["p_value"] >= 0.001 else "< 0.001",
        ]
        for each in figures["comparisons"]
    ]
    second = _table(["MAP over all 500 questions", "difference", "95 % interval", "p"], compared)
    return f"{_table(header, rows)}\n\n{second}"


def demo_table(stored: Figures) -> str:
    """Return how many questions are answered, and the table of answers."""
    rows = []
    for question, row in stored["demo"].items():
        text = " ".join(row["starter"].replace("|", "/").split())
        cut = f"{text[:64]}…" if len(text) > 64 else text
        told = f"“{cut}” ({sum(row['supported'])} of {len(row['supported'])} supported)"
        instead = "withheld" if row["withheld"] else "the extract instead"
        rows.append([question, "yes" if row["found"] else "no", told if text else instead])
    found = sum(row["found"] for row in stored["demo"].values())
    held = sum(bool(row["starter"]) and all(row["supported"]) for row in stored["demo"].values())
    own = sum(bool(row["starter"]) for row in stored["demo"].values())
    summary = (
        f"The extract holds the phrase for {found} of {len(rows)}. The starter's own words are shown for {own}; of\n"
        f"these {held} have every sentence supported."
    )
    return f"{summary}\n\n{_table(['question', 'extract', 'starter'], rows)}"


def speed_tables(stored: Figures) -> str:
    """Return the figures of speed, with the processor."""
    speed = stored["speed"]
    indexing = speed["indexing"]
    rate, size = indexing["snippets"] / indexing["seconds"], indexing["bytes_per_snippet"]
    first = (
        f"On {speed['machine']}: {indexing['snippets']:,} snippets are indexed in {indexing['seconds']:.0f} s "
        f"({rate:.0f} a\nsecond), {size:,.0f} bytes a snippet."
    )
    cold = [
        [label, f"{cost['wall_s']:.2f}", f"{cost['cpu_s']:.2f}", f"{cost['peak_mb']:.0f}"]
        for label, cost in speed["cold"].items()
    ]
    question = [[label, f"{stage['p50']:.2g}", f"{stage['p95']:.2g}"] for label, stage in speed["question"].items()]
    tables = (
        _table([f"cold start, median of {ROUNDS}", "seconds", "CPU seconds", "peak memory, MB"], cold),
        _table(["one question in a warm process", "median, ms", "95 %, ms"], question),
    )
    return "\n\n".join((first, *tables))


def readme_sentence(stored: Figures) -> str:
    """Return what the README says of speed and of retrieval."""
    speed, default = stored["speed"], stored["retrieval"]["hybrid + late-interaction reranking"]
    each = 1000 * speed["indexing"]["seconds"] / speed["indexing"]["snippets"]
    return (
        f"On {speed['machine']}, indexing takes {each:.0f} ms a PubMed snippet\nof a sentence or two, "
        "and several times that a whole abstract (`--estimate` measures yours). Among\n"
        f"{speed['indexing']['snippets']:,} snippets, `biorag search` takes "
        f"{speed['cold']['`search`']['wall_s']:.1f} s from a cold start, and "
        f"{speed['question']['all']['p50']:.0f} ms in a warm process, reranking included\n"
        "([performance](docs/results/performance.md)). With the untrained encoder, hybrid retrieval with\n"
        f"reranking reaches nDCG@10 of {default['bioasq']['nDCG@10']:.3f} on 1,497 BioASQ questions, BM25 alone "
        f"{stored['retrieval']['BM25']['bioasq']['nDCG@10']:.3f}, and of\n{default['scifact']['nDCG@10']:.3f} on "
        "BEIR's SciFact ([all results](docs/results/retrieval.md))."
    )


BLOCKS: dict[str, Callable[[Figures], str]] = {
    "retrieval": retrieval_table,
    "bioasq": bioasq_table,
    "demo": demo_table,
    "speed": speed_tables,
    "readme": readme_sentence,
}


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def stored_figures() -> dict[str, Any]:
    """Return the figures of every measurement that was made."""
    stored = json.loads(STORE.read_text(encoding="utf-8")) if STORE.is_file() else {}
    return {name: each["figures"] for name, each in stored.items()}


def written(text: str, stored: Figures) -> str:
    """Return a page with the stored figures in its blocks."""
    return with_blocks(text, "figures", lambda name: BLOCKS[name](stored))


def main() -> None:
    """Measure what is named, and write the pages."""
    data, *names = sys.argv[1:] or [""]
    HOME.mkdir(parents=True, exist_ok=True)
    for name in (names or MEASURED) if data else ():
        program = Program(Path(data).resolve())
        figures = MEASURED[name](program)
        stored = json.loads(STORE.read_text(encoding="utf-8")) if STORE.is_file() else {}
        stored[name] = {"commands": sorted(set(program.typed), key=program.typed.index), "figures": figures}
        STORE.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), stored_figures()), encoding="utf-8")


if __name__ == "__main__":
    main()
