"""What a sweep's report has: its tables, plots and contrasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from biorag.lab.recipes.grid import ASKED, BASE, MIRAGE, NONE, Sweep, cells
from biorag.lab.recipes.recipe import Point
from biorag.lab.recipes.steps import METRICS

SHOWN = ("success@3", "success@5", "success@10", "nDCG@10")


def tables(sweep: Sweep) -> list[dict[str, Any]]:
    """Return a table for each data set, and the accuracies on MIRAGE."""
    return [*(_table(sweep, str(dataset)) for dataset in sweep.evaluate), *_answer_tables(sweep)]


def _table(sweep: Sweep, dataset: str) -> dict[str, Any]:
    figures = {**{name: METRICS + name for name in SHOWN}, "ms/query": "timings_ms.total.p50"}
    return {
        "title": dataset,
        "columns": [{"title": name, "value": value} for name, value in figures.items()],
        "rows": [
            {"title": cell.name, "step": f"retrieval-{cell.pipeline}", "at": {**cell.point, "dataset": dataset}}
            for cell in cells(sweep)
        ],
    }


def _answer_tables(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the accuracies on MIRAGE, a row for each cell, k and generator."""
    if not sweep.mirage:
        return
    rows = []
    for cell, k, generator in product(cells(sweep), sweep.k, sweep.generator):
        ends = (f", k {k}" if len(sweep.k) > 1 else "", f", {generator}" if len(sweep.generator) > 1 else "")
        asked = {"k": k, "generator": generator}
        at = {**cell.point, **{axis: asked[axis] for axis in sweep.varied(ASKED)}}
        rows.append({"title": cell.name + "".join(ends), "step": f"answers-{cell.pipeline}", "at": at})
    figures = {"average": "average", **{task: f"tasks.{task}.accuracy" for task in sweep.mirage_tasks}}
    columns = [{"title": title, "value": value} for title, value in figures.items()]
    yield {"title": MIRAGE, "note": "Accuracy.", "columns": columns, "rows": rows}


def plots(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield what is found by each cell, how much better for how much longer, and the accuracies."""
    for dataset in map(str, sweep.evaluate):
        success = [{"table": dataset, "title": name} for name in SHOWN[:-1]]
        yield {"title": f"{dataset}: share of questions with a relevant snippet", "kind": "dots", "columns": success}
        both = [{"table": dataset, "title": name} for name in ("ms/query", SHOWN[-1])]
        yield {"title": f"{dataset}: {SHOWN[-1]} against time", "kind": "points", "columns": both, "log_x": True}
    if sweep.mirage:
        yield {"title": "Accuracy on MIRAGE", "kind": "dots", "columns": [{"table": MIRAGE, "title": "average"}]}


def findings(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the contrasts, and whether each cell, and BM25, ranks higher than its base encoder, by nDCG@10."""
    for dataset in map(str, sweep.evaluate):
        value, at = METRICS + SHOWN[-1], {"dataset": dataset}
        yield from _contrasts(sweep, f"{dataset}: ", "retrieval-", value, at)
        for cell in cells(sweep):
            base = {
                "step": f"retrieval-{BASE}",
                "at": {**{axis: cell.point[axis] for axis in sweep.varied(("base",))}, **at},
                "value": value,
            }
            own = {"step": f"retrieval-{cell.pipeline}", "at": {**cell.point, **at}, "value": value}
            if cell.pipeline != BASE:
                yield {"text": f"{dataset}: {cell.name} above the base encoder", "higher": own, "lower": base}
    if sweep.mirage:
        yield from _contrasts(sweep, f"{MIRAGE}: ", "answers-", "average", {})


def _contrasts(sweep: Sweep, where: str, step: str, value: str, at: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of one axis, the mean over all others: rerankers, negatives, similarity, k_init."""

    def contrast(text: str, higher: tuple[str, Point], lower: tuple[str, Point]) -> dict[str, Any]:
        sides = ({"step": step + name, "at": {**at, **point}, "value": value} for name, point in (higher, lower))
        return {"text": where + text, **dict(zip(("higher", "lower"), sides, strict=True))}

    strongest: str = "aligned" if "aligned" in sweep.reranker else sweep.reranker[-1]
    for other in (name for name in map(str, sweep.reranker) if name != strongest):
        shared = [kind for kind in sweep.kinds(strongest) if kind in sweep.kinds(other)]
        whole = shared == sweep.kinds(strongest) == sweep.kinds(other)
        for point in [{}] if whole else [{"negatives": kind} for kind in shared]:
            text = "".join([f"{strongest} above {other}", *(f" ({kind})" for kind in point.values())])
            yield contrast(text, (strongest, point), (other, point))
    plain = NONE if NONE in sweep.reranker else strongest
    first, *rest = sweep.kinds(plain) or [""]
    for other in rest:
        yield contrast(f"{first} above {other}", (plain, {"negatives": first}), (plain, {"negatives": other}))
    for axis, values in (("similarity", sweep.similarity), ("base", sweep.base), ("pretraining", sweep.pretraining)):
        for name in values[1:]:
            yield contrast(f"{values[0]} above {name}", (plain, {axis: values[0]}), (plain, {axis: name}))
    if strongest != NONE and len(sweep.k_init) > 1:
        most, least = max(sweep.k_init), min(sweep.k_init)
        yield contrast(f"k_init {most} above {least}", (strongest, {"k_init": most}), (strongest, {"k_init": least}))
