"""What the steps of a plan take on a machine, and which do not fit: by the guard of training and `biorag plan`."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from biorag.lab.recipes.named_models import models_in, models_of
from biorag.lab.recipes.plan import Instance, RecipePlan
from biorag.lab.recipes.recipe import StepWork
from biorag.lab.recipes.steps import unique
from biorag.lab.scale import planning
from biorag.lab.scale.planning import GIGABYTE, MachineKind, Workload
from biorag.models import resources
from biorag.models.finding import PLAIN_STARTER, STARTER_ENCODER, STARTER_LLM, find_base
from biorag.models.resources import FORWARD, ModelShape, gib
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings, checked
from biorag.settings.training import CROSS_ENCODER, RERANKER
from biorag.types import TrainingRow
from biorag.utils.cores import visible_gpus

CHARACTERS = 4  # of a token, as the guard counts them
QUERY_TOKENS = 64  # of a question, at most
DEFAULT_TOKENS = 128  # of a text, where a recipe does not say
ROW_BYTES = 900  # of a row in the host's memory besides its letters, with what reading it takes (docs/memory.md)
MODELS = 2  # on disk: the model, and a checkpoint's besides, which has AdamW's moments too


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """The seconds, bytes of memory and bytes of disk that a step takes, None where not known; why it does not fit.

    The memory is a device's; `host` is that of a training's rows in the machine's.
    """

    seconds: float | None = None
    bytes: int | None = None
    disk: int | None = None
    host: int | None = None
    fault: str = ""


def device_bytes(machine: MachineKind | None) -> int:
    """Return the bytes of memory of the device that a step runs on: a GPU's, or the machine's; None is this one."""
    if machine is None:
        from biorag.models.loading import best_device

        return resources.free_bytes(best_device())
    gigabytes = (machine.gpu_memory_gb if machine.gpus else None) or machine.memory_gb
    return int(gigabytes * GIGABYTE)


class Estimator:
    """Estimates the steps of a plan on a machine of a kind, or on this one (None); each process takes one GPU."""

    def __init__(self, plan: RecipePlan, machine: MachineKind | None = None) -> None:
        alone = {"count": 1, "gpus": min(1, machine.gpus)} if machine else {}
        self._plan, self._machine = plan, machine and machine.model_copy(update=alone)
        self._gpus = machine.gpus if machine else len(visible_gpus())
        self._known = models_of(plan.recipe)
        self._shapes: dict[str, ModelShape] = {}
        self._by_key = {instance.step.key: instance for instance in plan.instances}

    @cached_property
    def memory(self) -> int:
        """The bytes of the device."""
        return device_bytes(self._machine)

    @cached_property
    def host(self) -> int:
        """The bytes of the machine's own memory."""
        return int(self._machine.memory_gb * GIGABYTE) if self._machine else resources.free_bytes("cpu")

    @cached_property
    def _speed_here(self) -> float:
        import torch

        from biorag.models.loading import best_device, uses_bf16

        bf16 = uses_bf16(checked(self._plan.settings).retrieval.precision)
        return resources.operations(best_device(), torch.bfloat16 if bf16 else torch.float32)

    @property
    def speed(self) -> float:
        """The operations of matrix products in a second."""
        if self._machine and self._machine.gpus and self._machine.gpu_tflops:
            return self._machine.gpu_tflops * 1e12 * self._machine.gpu_utilisation
        return self._speed_here

    def all(self) -> dict[str, StepEstimate]:
        """Return the estimate of each step of the plan, by its key."""
        return {instance.step.key: self._of(instance) for instance in self._plan.instances}

    def _of(self, instance: Instance) -> StepEstimate:
        work, id = instance.template.work, self._model(instance)
        shape = self._shape(id) if work and id else None
        if work is None or shape is None or id is None:
            return StepEstimate()
        if work.kind == "train":
            estimate, fits = self._training(instance, work, shape)
        else:
            estimate = self._encoding(instance, work, shape)
            fits = (estimate.bytes or 0) <= self.memory
        if 0 < self._gpus < instance.step.processes:
            return replace(estimate, fault=f"it takes {instance.step.processes} GPUs, and there are {self._gpus}")
        if (estimate.host or 0) > self.host:
            fault = f"its rows take {gib(estimate.host or 0)} of the machine's memory and there are {gib(self.host)}"
            return replace(estimate, fault=fault)
        doing = f"training {id}" if work.kind == "train" else id
        fault = f"{doing} takes {gib(estimate.bytes or 0)} and there are {gib(self.memory)}"
        return estimate if fits else replace(estimate, fault=fault)

    def _model(self, instance: Instance) -> str | None:
        """Return the id of the model that a step trains or encodes with, also through the steps that made it."""
        for value in models_in(instance.step.arguments):
            need = self._by_key.get(value[1:-1])
            return self._model(need) if need else value
        return next((self._model(self._by_key[need.key]) for need in instance.step.needs), None)

    def _shape(self, id: str) -> ModelShape | None:
        """Return the shape of a model: as described, or of a starter that is installed."""
        from biorag.training.estimating import architecture_shape

        if id not in self._shapes:
            if id in self._known:
                self._shapes[id] = architecture_shape(self._known[id].config)
            elif id == STARTER_LLM or (id in (STARTER, PLAIN_STARTER) and STARTER_ENCODER.folder() is not None):
                self._shapes[id] = resources.model_shape(find_base(id))
        return self._shapes.get(id)

    def _settings(self, instance: Instance) -> Settings:
        """Return the settings that a step's command would have; on a GPU precision "auto" is bfloat16."""
        given = {name: value for name, value in instance.use.given.items() if "{" not in str(value)}  # no blanks
        values = {**self._plan.settings, **dict(instance.step.settings), **given}
        if self._machine and self._machine.gpus and values.get("precision", "auto") == "auto":
            values["precision"] = "bf16"
        return checked(values)

    def _rows(self, work: StepWork, of: str | int) -> tuple[int | None, int]:
        """Return how many rows of an input, or a number, there are, None if not known, and the tokens of a text."""
        source = None if isinstance(of, int) else self._plan.recipe.inputs[of]
        rows = source.size.get(self._plan.scale_name) if source else int(of)
        return rows, work.tokens or (source.tokens if source else DEFAULT_TOKENS)

    def _training(self, instance: Instance, work: StepWork, shape: ModelShape) -> tuple[StepEstimate, bool]:
        """Return the estimate of a training, and whether it fits by the guard's own rule."""
        from biorag.models.loading import uses_bf16
        from biorag.training.cross_encoder import MULTIPLE
        from biorag.training.estimating import MOMENT_BYTES, Machine, columns_work, epochs_of, estimate, texts_work

        settings = self._settings(instance)
        training, kind = settings.training, instance.use.name.rpartition(" ")[2]
        rows, tokens = self._rows(work, work.of)
        longest, mean = (_row(work, length) for length in (training.max_tokens, tokens))
        lora = bool(instance.use.options.get("lora"))
        if kind == CROSS_ENCODER:
            whole, one = (texts_work([row.query + row.positive], training, MULTIPLE) for row in (longest, mean))
        else:
            queries = training.query_tokens if kind == RERANKER else 0
            whole, one = (columns_work(kind, [row], training, queries, lora) for row in (longest, mean))
        device = "cuda" if self._machine and self._machine.gpus else "cpu"
        processes = instance.step.processes
        machine = Machine(device, self.memory, self.speed, uses_bf16(settings.retrieval.precision), processes)
        asked = replace(whole, tokens=one.tokens * (rows or 1))
        found = estimate(shape, asked, training, machine, epochs_of(training, rows or 1, processes))
        disk = MODELS * resources.WEIGHT_BYTES * found.parameters + MOMENT_BYTES * found.trained
        held, length = self._rows(work, work.held or work.of)
        row = _row(work, length)
        host = processes * (held or 0) * (ROW_BYTES + sum(map(len, (row.query, row.positive, *row.negatives))))
        return StepEstimate(found.seconds if rows else None, found.peak, disk, host), found.fits(self.memory)

    def _encoding(self, instance: Instance, work: StepWork, shape: ModelShape) -> StepEstimate:
        settings = self._settings(instance)
        rows, tokens = self._rows(work, work.of)
        needed = resources.WEIGHT_BYTES * shape.parameters
        if rows is None:
            return StepEstimate(None, needed, None)
        snippets, length = int(rows * work.texts), min(tokens, shape.window)
        stored = settings.index.store_tokens or "none"
        workload = Workload(snippets, length, shape.hidden, shape.parameters, shape.multiplied, stored)
        disk = int(snippets * planning.sizes(workload).indexed)
        if self._machine:
            stages = {stage.name: stage.seconds for stage in planning.plan(workload, self._machine).stages}
            seconds = sum(stages[name] for name in ("encode", "load", "build"))
        else:
            seconds = FORWARD * shape.multiplied * snippets * length / self.speed
        return StepEstimate(seconds, needed, disk)


def _row(work: StepWork, tokens: int) -> TrainingRow:
    """Return a row whose texts have so many tokens each, a question fewer."""
    text = "a" * (CHARACTERS * (tokens - 1))
    query = text[: CHARACTERS * (min(tokens, QUERY_TOKENS) - 1)]
    return TrainingRow(query, text, (text,) * max(0, round(work.texts) - 2))


def elapsed(plan: RecipePlan, estimates: Mapping[str, StepEstimate], jobs: int) -> float:
    """Return the seconds until all steps have ended, of which `jobs` run at a time, each after those that it needs."""
    free, ends = [0.0] * jobs, dict[str, float]()
    for step in unique(plan.steps):
        places = [heapq.heappop(free) for _ in range(min(step.processes, jobs))]  # of each process
        start = max([*places, *(ends[need.key] for need in step.needs)])
        ends[step.key] = start + (estimates[step.key].seconds or 0)
        for _ in places:
            heapq.heappush(free, ends[step.key])
    return max(ends.values())


def totals(plan: RecipePlan, estimates: Mapping[str, StepEstimate], jobs: int = 1) -> dict[str, Any]:
    """Return what all steps take together, `jobs` at a time, and what servers are asked."""
    servers = [
        {
            "name": name,
            **server.model_dump(include={"what", "model", "get"}),
            "url": plan.urls[name],
            "calls": server.calls.get(plan.scale_name),
            "cost": round(server.cost(plan.scale_name), 2),
        }
        for name, server in plan.servers.items()
    ]
    return {
        "seconds": elapsed(plan, estimates, jobs),
        "host": max(one.host or 0 for one in estimates.values()),
        "disk": sum(one.disk or 0 for one in estimates.values()),
        "cost": sum(server["cost"] for server in servers),
        "servers": servers,
    }
