"""Filters of a search as Qdrant's conditions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from qdrant_client import models

from biorag.indexes.manifest import Bm25Parameters
from biorag.indexes.points import point_id, stored
from biorag.types import EXISTS, FieldFilter, IndexQuery

BOUNDS = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}


def point_ids(ids: Sequence[str]) -> list[int | str | UUID]:
    """Return the ids of snippets' points as the client takes them."""
    return [str(point_id(id)) for id in ids]


def query_filter(probe: IndexQuery, bm25: Bm25Parameters) -> models.Filter | None:
    """Return the filter of a probe; None if it has no condition."""
    conditions = [stored(condition, bm25) for condition in probe.where]
    must: list[models.Condition] = [_condition(condition) for condition in conditions if not condition.negated]
    must_not: list[models.Condition] = [_condition(condition) for condition in conditions if condition.negated]
    if probe.among is not None:
        must.append(models.HasIdCondition(has_id=point_ids(sorted(probe.among))))
    return models.Filter(must=must, must_not=must_not) if must or must_not else None


def _condition(condition: FieldFilter) -> models.FieldCondition:
    key, value = condition.field, condition.value
    if condition.op == EXISTS:
        return models.FieldCondition(key=key, values_count=models.ValuesCount(gte=1))
    if isinstance(value, tuple):
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(value)))
    if condition.op in BOUNDS:
        return models.FieldCondition(key=key, range=models.Range(**{BOUNDS[condition.op]: float(value)}))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
