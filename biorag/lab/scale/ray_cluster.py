"""Encoding on Ray: batches of snippets go through Ray Data to workers that keep their models.

Batches travel as the rows they are of, which workers read themselves: texts do not pass through the object store, and
a batch is the same as that of a run without Ray. So the folders must be seen by all machines under the same path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from biorag import errors
from biorag.errors import BioragError, ServiceError
from biorag.lab.scale.vectors import BatchEncoder, Encode, EncodingJob, SnippetBatch
from biorag.models.finding import first_line

LOCAL = "local"
# Ray reports its use to its makers unless it is told not to, before it is imported; and warns of what it does itself.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
# Workers are the work here, and Ray would run those that it starts behind every other program of the machine.
os.environ.setdefault("RAY_worker_niceness", "0")


@contextmanager
def ray_session(address: str, cores: int) -> Iterator[None]:
    """Connect to a Ray cluster, `auto` for the one that is running, or start one of `cores` on this machine, `local`.

    Raises `ServiceError` if it cannot be reached or started, or fails.
    """
    import ray

    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        options |= {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address, **options)
    except Exception as error:  # of many kinds
        raise ServiceError(f"Ray does not answer at {address!r} ({first_line(error)}): check --ray") from error
    try:
        with worker_errors():
            yield
    finally:
        ray.shutdown()


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raise what a worker raised as the error that it is.

    Raises `BioragError` of the worker; a ServiceError if it raised none of ours.
    """
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise as_ours(getattr(error, "cause", None) or error) from error


def as_ours(error: Exception) -> BioragError:
    """Return what a worker raised as one of our errors."""
    if isinstance(error, BioragError):
        kind: type[BioragError] = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        return kind(str(error))
    return ServiceError(f"Ray's workers failed ({first_line(error)}): run the same command again")


class _Worker:
    """A `BatchEncoder` as Ray Data calls it.

    What it raises is returned, for of an exception Ray Data passes on no more than that there was one.
    """

    def __init__(self, job: EncodingJob) -> None:
        self._job = job
        self._encode: BatchEncoder | None = None

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        try:
            self._encode = self._encode or BatchEncoder(self._job)
            count = self._encode(SnippetBatch(item["part"], np.frombuffer(item["rows"], np.int64)))
        except Exception as error:
            ours = as_ours(error)
            return {"count": 0, "error": type(ours).__name__, "message": str(ours)}
        return {"count": count, "error": "", "message": ""}


def _count(row: dict[str, Any]) -> int:
    """Return how many snippets a worker encoded, or raise what it raised."""
    if row["error"]:
        raise getattr(errors, row["error"])(row["message"])
    return int(row["count"])


def encode_by_ray(count: int | None, gpus: int) -> Encode:
    """Encode by so many workers, by default one a core of the cluster, and with GPUs if there are any.

    A worker that dies is replaced, and its batch is given to another one.
    """

    def encode(job: EncodingJob, batches: Sequence[SnippetBatch]) -> Iterator[int]:
        import ray.data

        workers = count or int(ray.cluster_resources().get("CPU", 1))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [{"part": batch.part, "rows": batch.rows.astype(np.int64).tobytes()} for batch in batches]
        encoded = ray.data.from_items(items, override_num_blocks=len(items)).map(
            _Worker,
            fn_constructor_args=(job,),
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(batches)), max_tasks_in_flight_per_actor=2),
            num_cpus=None if gpus else 1,
            num_gpus=gpus / workers if gpus else None,
        )
        return map(_count, encoded.iter_rows())

    return encode
