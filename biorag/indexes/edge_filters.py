"""Conditions on fields as the embedded engine takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import qdrant_edge as qe

from biorag.indexes.manifest import Bm25Parameters
from biorag.indexes.points import point_id, stored
from biorag.types import EXISTS, FieldFilter, IndexQuery


def edge_filter(probe: IndexQuery, bm25: Bm25Parameters) -> qe.Filter | None:
    """Return the conditions of a probe as the engine takes them; None if there are none."""
    conditions = [stored(condition, bm25) for condition in probe.where]
    must: list[qe.ConditionType] = [_condition(condition) for condition in conditions if not condition.negated]
    must_not: list[qe.ConditionType] = [_condition(condition) for condition in conditions if condition.negated]
    if probe.among is not None:
        must.append(qe.HasIdCondition({point_id(id) for id in probe.among}))
    return qe.Filter(must=must, must_not=must_not) if must or must_not else None


def _condition(condition: FieldFilter) -> qe.FieldCondition:
    key, value = condition.field, condition.value
    if condition.op == EXISTS:
        return qe.FieldCondition(key, values_count=qe.ValuesCount(gte=1))
    if isinstance(value, tuple):
        return qe.FieldCondition(key, match=qe.MatchAny(list(value)))
    bounds = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}
    if condition.op in bounds:
        return qe.FieldCondition(key, range=qe.RangeFloat(**{bounds[condition.op]: float(value)}))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return qe.FieldCondition(key, range=qe.RangeFloat(gte=float(value), lte=float(value)))
    # The binding takes a Python bool for a whole number, NumPy's for what it is.
    exact: Any = np.bool_(value) if isinstance(value, bool) else value
    return qe.FieldCondition(key, match=qe.MatchValue(exact))
