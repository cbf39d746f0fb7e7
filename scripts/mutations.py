"""Small faults put into the core on purpose, one at a time, to see whether the tests notice.

Sites are found by what they say, not by where they lie: a function of `CORE` by its name anywhere under biorag/, in it
an operator, and the code that it changes. So one drawn list can be held against another layout of the package; names
of variables and attributes may have changed, `RENAMED` knows functions with a new name, and a line of the list may
name by hand the code that has taken over (`now`), or what replaced it (`gone`).

    python scripts/mutations.py ROOT --draw FILE [--seed 7] [--count 30]   draw from the checkout ROOT into FILE
    python scripts/mutations.py ROOT --list                                where each mutation lies in ROOT
    python scripts/mutations.py ROOT --apply N                             change the checkout ROOT
    python scripts/mutations.py ROOT --run OUT.jsonl [--only N,N] [--tests PATH ...]
        [--limit SECONDS] [--marks EXPRESSION]

`--run` copies the checkout for each mutation and runs the tests of the mutated module until one fails: those that
import it, then those of the commands that use it, or those of `--tests`. Each result is a JSON line of OUT: `caught`
(by a test that passes without the mutation), `survived`, `timeout`, `gone`, or `unfounded` where the test fails
anyhow. A run that was interrupted resumes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

DRAWN = Path(__file__).with_name("mutations.jsonl")
LEFT_OUT = (".git", ".venv", "__pycache__", ".*_cache", "*.egg-info")


class Area(NamedTuple):
    """Functions as `Class.method` or `function`, with `path:` before where the name alone is not unique.

    `tests` are the files that hold it besides those that import its module: patterns of their names.
    """

    functions: str
    tests: str = "search_and_ask cli"


CORE = {
    "fusions": Area("ranked fusion:linear reciprocal_rank min_max"),
    "cut-offs": Area(
        "Retriever.search_all Retriever._candidates Retriever._first_stage _by_document pipeline:_hits retriever:_hits"
    ),
    "interpolation": Area("Retriever._rerank Retriever._comparable Retriever._fuse _score_in_turns"),
    "maxsim": Area("mean_maxsim StoredLateInteraction.score_all LateInteraction.score_all pooled"),
    "bm25": Area(
        "Bm25Encoder.__init__ Bm25Encoder.document Bm25Encoder.query LengthCounter.__init__ LengthCounter.__call__ "
        "search_width best_first"
    ),
    "filters": Area("parse_filter filters:_flag filters:_comparison filters:_value exclude_pmids"),
    "blocks": Area("blocks:cut _tokens_at _latest _earliest Splitter.__call__ Splitter.check sentence_starts"),
    "citations": Area(
        "cited_numbers parse:_cited without_marks terms _stem sentences best_sentence matches find_quote "
        "marked_sentences align misplaced judge"
    ),
    "replies": Area("Reply.text Reply.choice parse_reply _first_object"),
    "mirage": Area("locate score_reply task_score average paired_bootstrap stored_reply", "mirage* search_and_ask cli"),
    "metrics": Area(
        "retrieval:evaluate judged_id run_scores read_run score_documents score_snippets measures:merged "
        "geometric_mean",
        "*bench_retrieval *bioasq",
    ),
    "significance": Area(
        "bootstrap_interval bootstrap_means permutation_p_value differences paired _chunks", "*bench_retrieval"
    ),
    "losses": Area(
        "OwnNegativesLoss.forward _pairwise maxsim_scores _widened logistic_loss train/retriever:_scale "
        "train/retriever:_loss train/reranker:_loss",
        "losses training train train_cross_encoder cross_encoder*",
    ),
    "sampling": Area(
        "WeightedBatchSampler.__iter__ WeightedBatchSampler.__len__ passes mixed data:sampled with_negatives "
        "RandomPrompts.__call__ RandomPrompts._drawn",
        "mixture instructions data *train",
    ),
    "mining": Area(
        "golds eligible drawn by_question Bm25Negatives.window RandomNegatives.window RandomNegatives._draws shuffled",
        "*mine *mining",
    ),
    "hard negatives": Area(
        "RetrieverNegatives.window score_of_positive negatives/retriever:most parse_ranks require_positives",
        "*mine *mining",
    ),
    "citation negatives": Area(
        "CitedPapers.of CitedPapers.reach CitedPapers._indexed CitationNegatives.window walk citation:_next",
        "*mine *mining",
    ),
    "held out": Area(
        "is_held_out rows:split halves held_out sides:training sides:dropped _unseen _held_out cap_positives",
        "*held_out *train",
    ),
    "contamination": Area(
        "Guard.matches Guard._best Guard._may_match guarded shingles guard:jaccard bands", "*held_out *train *mine"
    ),
    "merging": Area("arithmetic:linear ties trim _weighted", "*merge*"),
    "resuming": Area(
        "ResumableRun.finished ResumableRun.check_nothing_else ResumableFile.finished ResumableFile.whole_lines "
        "ResumableFile.appending changed_keys "
        "TripletFile.resume TripletFile._after TrainingRun.changed TrainingRun.last_checkpoint",
        "*mine *mining *triplets *train *mirage_run",
    ),
    "checksums": Area(
        "write_checksums check_files _checksum shard_files", "*checksums edge snapshot cli search_and_ask"
    ),
    "files": Area("replacing make_folder sync_folder FolderTree.sync try_lock require_room", "*files *faults store"),
    "locks": Area(
        "DirectoryLock.__init__ DirectoryLock.release DirectoryLock._holder DirectoryLock._write", "*locks store"
    ),
    "manifests": Area(
        "Manifest.from_json manifest:_record check_encoder check_settings", "*manifest store cli search_and_ask"
    ),
    "kept replies": Area(
        "CachedGenerator.generate CachedGenerator.score CachedGenerator._entry cache:_write", "*cache *search_and_ask"
    ),
    "retries": Area(
        "Retries.__call__ Retries._try Retries._wait _pause retries:may_pass _stays _retry_after", "*retries *eutils"
    ),
    "citation graph": Area(
        "FileRun.cut FileRun.read GraphRun.sample GraphRun.cut GraphRun.read merge:merge _pieces _Array.write "
        "edge_keys distinct",
        "*graph",
    ),
    "pubmed": Area(
        "parse_record pubmed:_references pubmed:_metadata pubmed:_notices _abstract _section _collect pubmed:_pmids "
        "pubmed:_date pubmed:_month",
        "*pubmed*",
    ),
    "updates": Area(
        "Updater.write Updater._remove_orphans Updater._differs Updater._remove _is_older revision", "*pubmed* *writing"
    ),
}

# Functions that have another name since the list was drawn.
RENAMED: Mapping[str, str] = {
    "Guard.matches": "ContaminationDetector.matches",
    "IndexLock._holder": "DirectoryLock._holder",
    "Retries.__call__": "Retries._try",
    "sampled": "with_negatives",
}

FLIPPED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_END = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
SPEAKING = ("logger", "on_progress", "super")  # calls that only tell, or are needed to be at all
OF_THE_PACKAGE = ("test_layers.py", "test_docs.py", "test_startup.py")  # they name modules and test none
ORDERLESS = ("isinstance", "getattr", "replace")


class Mutant(NamedTuple):
    """A node of a function, the operator that changes it, and what it becomes; a statement or an expression."""

    operator: str
    node: ast.expr | ast.stmt
    changed: ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Mutation:
    """One line of the list; `nth` counts from 0 the mutants of the function that read the same, by each of `LEVELS`.

    `now` has those of `function`, `operator`, `original` and `mutated` that differ in the tree as it is today.
    """

    number: int
    area: str
    function: str
    operator: str
    original: str
    mutated: str
    nth: tuple[int, ...]
    at: str
    now: Mapping[str, Any] | None = None
    gone: str | None = None


def _blank(node: ast.AST, attributes: bool) -> ast.AST:
    """Return a copy without the names of variables, and of attributes if asked."""
    node = copy.deepcopy(node)
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            child.id = "_"
        elif isinstance(child, ast.arg):
            child.arg = "_"
        elif attributes and isinstance(child, ast.Attribute):
            child.attr = "_"
    return node


# What is compared of two pieces of code: everything; all but variables' names; all but names.
LEVELS: tuple[Callable[[ast.AST], str], ...] = (
    ast.unparse,
    lambda node: ast.unparse(_blank(node, attributes=False)),
    lambda node: ast.unparse(_blank(node, attributes=True)),
)


def _changed(node: Any, **fields: Any) -> Any:
    """Return a copy of a node with other fields."""
    node = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _is_count(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _plus_one(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.Constant(node.value + 1)
    return ast.BinOp(node, ast.Add(), ast.Constant(1))


def _off_by_one(node: ast.AST) -> Iterator[Mutant]:
    """Yield the node with each whole number directly in it, and each end of a slice, one higher."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        for name in ("lower", "upper"):
            if bound := getattr(node.slice, name):
                yield Mutant("off by one", node, _changed(node, slice=_changed(node.slice, **{name: _plus_one(bound)})))
        return
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub):
        return
    if not isinstance(node, ast.BinOp | ast.Compare | ast.Call | ast.Subscript | ast.Assign | ast.Return):
        return
    for name, value in ast.iter_fields(node):
        if _is_count(value):
            yield Mutant("off by one", node, _changed(node, **{name: _plus_one(value)}))
        for place, item in enumerate(value if isinstance(value, list) else ()):
            if _is_count(item):
                items = [*value[:place], _plus_one(item), *value[place + 1 :]]
                yield Mutant("off by one", node, _changed(node, **{name: items}))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _of_call(node: ast.Call) -> Iterator[Mutant]:
    if other := OTHER_END.get(_called(node)):
        name = "id" if isinstance(node.func, ast.Name) else "attr"
        yield Mutant("min or max", node, _changed(node, func=_changed(node.func, **{name: other})))
    match node.args:
        # Arguments of another form are mostly of another type, and the swap no more than a crash.
        case [ast.expr() as first, ast.expr() as second, *rest] if type(first) is type(second) is not ast.Starred:
            if _called(node) not in ORDERLESS and ast.unparse(first) != ast.unparse(second):
                yield Mutant("swapped arguments", node, _changed(node, args=[second, first, *rest]))


def _of_condition(node: ast.If | ast.IfExp | ast.comprehension) -> Iterator[Mutant]:
    for test in node.ifs if isinstance(node, ast.comprehension) else [node.test]:
        yield Mutant("negated condition", test, ast.UnaryOp(ast.Not(), copy.deepcopy(test)))
    if (
        isinstance(node, ast.If)
        and not node.orelse
        and isinstance(node.body[-1], ast.Raise | ast.Continue | ast.Return)
    ):
        yield Mutant("dropped check", node.test, ast.Constant(False))


def _of_comparison(node: ast.Compare) -> Iterator[Mutant]:
    for place, operator in enumerate(node.ops):
        if other := FLIPPED.get(type(operator)):
            operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
            yield Mutant("comparison", node, _changed(node, ops=operators))


def _of_sum(node: ast.BinOp) -> Iterator[Mutant]:
    sides = (node.left, node.right)
    if any(isinstance(side, ast.List | ast.JoinedStr) or _is_text(side) for side in sides):
        return
    yield Mutant("sign", node, _changed(node, op=ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()))


def _of_statement(node: ast.Expr) -> Iterator[Mutant]:
    if isinstance(node.value, ast.Call) and not ast.unparse(node).startswith(SPEAKING):
        yield Mutant("dropped call", node, ast.Pass())


def _of_node(node: ast.AST) -> Iterator[Mutant]:
    """Yield what the operators make of one node."""
    match node:
        case ast.Compare():
            yield from _of_comparison(node)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield from _of_sum(node)
        case ast.UnaryOp(op=ast.USub()):
            yield Mutant("sign", node, copy.deepcopy(node.operand))
        case ast.BoolOp():
            yield Mutant("and or", node, _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()))
        case ast.Call():
            yield from _of_call(node)
        case ast.Expr():
            yield from _of_statement(node)
        case ast.If() | ast.IfExp() | ast.comprehension():
            yield from _of_condition(node)
    yield from _off_by_one(node)


def mutants(function: ast.FunctionDef) -> Iterator[Mutant]:
    """Yield all mutants of a function's body, but not of what it says: messages, checks of our own, annotations."""

    def below(node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.arguments):
            return
        yield from _of_node(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from below(child)

    for statement in function.body:
        yield from below(statement)


@cache
def functions(root: Path) -> list[tuple[Path, str, ast.FunctionDef]]:
    """Return each function of the package with its file and its name, `Class.method` for a method."""
    listed = []
    for path in sorted((root / "biorag").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            listed += [(path, owner + item.name, item) for item in members if isinstance(item, ast.FunctionDef)]
    return listed


def _named(root: Path, pattern: str) -> list[tuple[Path, ast.FunctionDef]]:
    """Return the functions of a name of `CORE`."""
    hint, _, name = pattern.rpartition(":")
    return [
        (path, node)
        for path, found, node in functions(root)
        if found == name and hint in str(path.relative_to(root).with_suffix(""))
    ]


def _nth(mutant: Mutant, among: Sequence[Mutant]) -> tuple[int, ...]:
    """Return how many before it read the same, by each of `LEVELS`."""
    before = among[: among.index(mutant)]
    return tuple(
        sum(
            other.operator == mutant.operator
            and level(other.node) == level(mutant.node)
            and level(other.changed) == level(mutant.changed)
            for other in before
        )
        for level in LEVELS
    )


def draw(root: Path, seed: int, count: int) -> list[Mutation]:
    """Return mutations of different areas, so long as there are any: first an area, then an operator, then a site."""
    random = Random(seed)
    areas: dict[str, list[tuple[str, Path, Mutant, list[Mutant]]]] = {}
    for area, (names, _) in CORE.items():
        for name in names.split():
            for path, function in _named(root, name):
                made = list(mutants(function))
                areas.setdefault(area, []).extend((name, path, mutant, made) for mutant in made)
    order = random.sample(sorted(areas), len(areas))
    drawn: list[Mutation] = []
    for area in cycle(order):
        if len(drawn) == count or not any(areas.values()):
            break
        if not areas[area]:
            continue
        operator = random.choice(sorted({mutant.operator for _, _, mutant, _ in areas[area]}))
        site = random.choice([site for site in areas[area] if site[2].operator == operator])
        areas[area].remove(site)
        name, path, mutant, made = site
        at = f"{path.relative_to(root)}:{mutant.node.lineno}"
        original, mutated = ast.unparse(mutant.node), ast.unparse(mutant.changed)
        drawn.append(Mutation(len(drawn) + 1, area, name, operator, original, mutated, _nth(mutant, made), at))
    return drawn


def read_drawn(path: Path) -> list[Mutation]:
    """Return the mutations of a list."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Mutation(**{**row, "nth": tuple(row["nth"])}) for row in rows]


def write_drawn(path: Path, drawn: Iterable[Mutation]) -> None:
    """Write a list, one JSON line for each."""
    rows = ({key: value for key, value in asdict(mutation).items() if value is not None} for mutation in drawn)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _reads(text: str) -> ast.AST:
    """Return the code of a line of the list as the statement or expression that it is."""
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def locate(root: Path, mutation: Mutation) -> tuple[Path, Mutant] | None:
    """Return where a mutation lies in a checkout; None if the code is no longer there.

    What `now` says comes before what was drawn, code that reads the same before code with other names, and a function
    of the path that was named before others of its name.
    """
    for known in (replace(mutation, **(mutation.now or {})), mutation):
        name = known.function.rpartition(":")[2]
        names = (known.function, name, RENAMED.get(name, name))
        candidates = [function for candidate in names for function in _named(root, candidate)]
        for level, nth in zip(LEVELS, known.nth, strict=True):
            wanted = [level(_statement_or_expression(known.operator, text)) for text in (known.original, known.mutated)]
            for path, function in candidates:
                same = [
                    mutant
                    for mutant in mutants(function)
                    if mutant.operator == known.operator and [level(mutant.node), level(mutant.changed)] == wanted
                ]
                if same:
                    return path, same[min(nth, len(same) - 1)]
    return None


def _statement_or_expression(operator: str, text: str) -> ast.AST:
    node = _reads(text)
    return ast.Expr(node) if operator == "dropped call" and isinstance(node, ast.expr) else node


def mutate(path: Path, mutant: Mutant) -> None:
    """Change a file: the code of one node, all else as it was."""
    node = mutant.node
    assert node.end_lineno is not None and node.end_col_offset is not None, "read from a file"
    text = ast.unparse(mutant.changed)
    lines = path.read_bytes().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    content = b"".join(lines)
    code = f"({text})" if isinstance(node, ast.expr) else text
    path.write_bytes(content[:begin] + code.encode() + content[end:])


def tests_of(root: Path, path: Path, area: str) -> list[str]:
    """Return the test files for a module: its own, those that import it, the smallest first, then the area's."""
    dotted = str(path.relative_to(root).with_suffix("")).replace("/", ".")
    package, _, stem = dotted.rpartition(".")
    imports = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(package)} import .*\b{stem}\b")
    files = [file for file in (root / "tests").rglob("test_*.py") if file.name not in OF_THE_PACKAGE]
    files.sort(key=lambda file: (file.name != f"test_{stem}.py", file.stat().st_size, file))
    direct = [file for file in files if imports.search(file.read_text(encoding="utf-8"))]
    patterns = [f"test_{stem}.py", *(f"test_{name}.py" for name in CORE[area].tests.split())]
    patterns += [f"test_cli_{name.lstrip('*')}.py" for name in CORE[area].tests.split()]
    named = [file for pattern in patterns for file in files if file.match(pattern)]
    return [str(file.relative_to(root)) for file in dict.fromkeys([*direct, *named])]


def pytest(root: Path, tests: Sequence[str], limit: float, marks: str) -> tuple[int | None, str]:
    """Run tests in a checkout until one fails; return the exit code, None past the limit, and the output."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", marks, *tests]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output.seek(0)
        return code, output.read()


def judged(
    root: Path, mutation: Mutation, tests: Sequence[str], limit: float = 300.0, marks: str = ""
) -> dict[str, Any]:
    """Return what becomes of one mutation of a checkout."""
    if mutation.gone:
        return {"status": "gone", "by": mutation.gone}
    if not (site := locate(root, mutation)):
        return {"status": "gone"}
    path, mutant = site
    chosen = list(tests) or tests_of(root, path, mutation.area)
    at = f"{path.relative_to(root)}:{mutant.node.lineno}"
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        clean, mutated = Path(folder, "clean"), Path(folder, "mutated")
        shutil.copytree(root, mutated, ignore=shutil.ignore_patterns(*LEFT_OUT))
        mutate(mutated / path.relative_to(root), mutant)
        started = time.monotonic()
        code, output = pytest(mutated, chosen, limit, marks)
        result = {"at": at, "tests": chosen, "seconds": round(time.monotonic() - started, 1)}
        if code in (0, None):
            return {"status": "timeout" if code is None else "survived", **result}
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        by = failed[1] if failed else output[-500:]
        shutil.copytree(root, clean, ignore=shutil.ignore_patterns(*LEFT_OUT))
        passes = failed is not None and pytest(clean, [failed[1]], limit, marks)[0] == 0
        return {"status": "caught" if passes else "unfounded", "by": by, **result}


def run(root: Path, drawn: Sequence[Mutation], out: Path, tests: Sequence[str], limit: float, marks: str) -> None:
    """Judge each mutation that is not in the file yet, and append the results."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    done = {json.loads(line)["number"] for line in lines}
    for mutation in drawn:
        if mutation.number in done:
            continue
        facts = {"number": mutation.number, "area": mutation.area, "function": mutation.function}
        line = json.dumps(facts | judged(root, mutation, tests, limit, marks), ensure_ascii=False)
        with out.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def listing(root: Path, drawn: Iterable[Mutation]) -> Iterator[str]:
    """Yield a line for each mutation: where it lies, and what it changes."""
    for mutation in drawn:
        site = None if mutation.gone else locate(root, mutation)
        at = f"{site[0].relative_to(root)}:{site[1].node.lineno}" if site else f"gone {mutation.gone or ''}".strip()
        shown = (ast.unparse(site[1].node), ast.unparse(site[1].changed)) if site else ()
        change = " -> ".join(shown or (mutation.original, mutation.mutated)).replace("\n", " ")
        yield f"{mutation.number:2} {mutation.area}: {mutation.function} ({mutation.operator}) {at}\n     {change}\n"


def main() -> None:
    """Draw, list, apply or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parent.parent, help="a checkout")
    parser.add_argument("--drawn", type=Path, default=DRAWN, help="the list")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--only", default="", help="numbers of mutations, separated by commas; default all")
    parser.add_argument("--tests", nargs="*", default=[], help="test files instead of the mutated module's")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of one mutation")
    parser.add_argument("--marks", default="", help="as pytest's -m, such as 'not slow'")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--draw", type=Path, metavar="FILE")
    what.add_argument("--list", action="store_true")
    what.add_argument("--apply", type=int, metavar="N")
    what.add_argument("--run", type=Path, metavar="OUT")
    options = parser.parse_args()
    root = options.root.resolve()
    if options.draw:
        write_drawn(options.draw, draw(root, options.seed, options.count))
        return
    only = {int(number) for number in options.only.split(",") if number}
    drawn = [mutation for mutation in read_drawn(options.drawn) if not only or mutation.number in only]
    if options.list:
        sys.stdout.writelines(listing(root, drawn))
    elif options.run:
        run(root, drawn, options.run, options.tests, options.limit, options.marks)
    else:
        site = locate(root, next(mutation for mutation in drawn if mutation.number == options.apply))
        if not site:
            parser.exit(4, f"mutation {options.apply} has no place in {root}\n")
        mutate(*site)


if __name__ == "__main__":
    main()
