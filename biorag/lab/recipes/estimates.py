"""What the steps of a plan take on a machine, and which do not fit, by the guard of training and `biorag plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from biorag.lab.recipes.plan import Instance, RecipePlan
from biorag.lab.recipes.recipe import StepWork, models_in, models_of
from biorag.lab.recipes.steps import unique
from biorag.lab.scale.planning import GIGABYTE, MachineKind, Workload, sizes, stage_rates
from biorag.models.finding import PLAIN_STARTER, STARTER_ENCODER, STARTER_LLM, find_base
from biorag.models.resources import (
    FORWARD,
    WEIGHT_BYTES,
    ModelShape,
    architecture_shape,
    free_bytes,
    gib,
    model_shape,
    operations,
)
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings, checked
from biorag.settings.training import CROSS_ENCODER, LANGUAGE_MODEL, QUESTION_GENERATOR, RERANKER
from biorag.utils.cores import visible_gpus

CHARACTERS = 4  # of a token, about
QUERY_TOKENS = 64  # of a question, at most
DEFAULT_TOKENS = 128  # of a text, where a recipe does not say
ROW_BYTES = 900  # of a row in the host's memory besides its letters, with what reading it takes (docs/memory.md)


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

        return free_bytes(best_device())
    gigabytes = (machine.gpu_memory_gb if machine.gpus else None) or machine.memory_gb
    return int(gigabytes * GIGABYTE)


class Estimator:
    """Estimates the steps of a plan on a machine of a kind, or on this one (None); each process takes one GPU."""

    def __init__(self, plan: RecipePlan, machine: MachineKind | None = None) -> None:
        self._plan = plan
        self._gpus = machine.gpus if machine else len(visible_gpus())
        self._on_gpu = bool(machine and machine.gpus)
        self._machine = machine and machine.model_copy(update={"count": 1, "gpus": min(1, machine.gpus)})
        self._by_key = {instance.step.key: instance for instance in plan.instances}
        self._shape = cache(self._shape_of)
        self.host = int(machine.memory_gb * GIGABYTE) if machine else free_bytes()

    @cached_property
    def memory(self) -> int:
        """The bytes of the device, which torch, that takes seconds to load, tells of this machine's."""
        return device_bytes(self._machine)

    @cached_property
    def speed(self) -> float:
        """The operations of matrix products in a second."""
        if self._machine and self._machine.gpu_speed:
            return self._machine.gpu_speed
        import torch

        from biorag.models.loading import best_device, uses_bf16

        bf16 = uses_bf16(checked(self._plan.settings).retrieval.precision)
        return operations(best_device(), torch.bfloat16 if bf16 else torch.float32)

    def all(self) -> dict[str, StepEstimate]:
        """Return the estimate of each step of the plan, by its key."""
        return {instance.step.key: self._of(instance) for instance in self._plan.instances}

    def _of(self, instance: Instance) -> StepEstimate:
        work, id = instance.template.work, self._model(instance)
        shape = self._shape(id) if work and id else None
        if work is None or shape is None:
            return StepEstimate()
        if work.kind == "train":
            estimate, fits = self._training(instance, work, shape)
        else:
            estimate = self._encoding(instance, work, shape)
            fits = (estimate.bytes or 0) <= self.memory
        fault = ""
        if 0 < self._gpus < instance.step.processes:
            fault = f"it takes {instance.step.processes} GPUs, and there are {self._gpus}"
        elif (estimate.host or 0) > self.host:
            fault = f"its rows take {gib(estimate.host or 0)} of the machine's memory and there are {gib(self.host)}"
        elif not fits:
            doing = f"training {id}" if work.kind == "train" else id
            fault = f"{doing} takes {gib(estimate.bytes or 0)} and there are {gib(self.memory)}"
        return replace(estimate, fault=fault)

    def _model(self, instance: Instance) -> str | None:
        """Return the id of the model that a step trains or encodes with, also through the steps that made it.

        One that is pre-trained has the name of its step.
        """
        if instance.use.name.endswith(LANGUAGE_MODEL):
            return instance.step.name
        for value in models_in(instance.step.arguments):
            maker = self._by_key.get(value[1:-1])
            return self._model(maker) if maker else value
        return next((self._model(self._by_key[need.key]) for need in instance.step.needs), None)

    def _shape_of(self, id: str) -> ModelShape | None:
        """Return the shape of a model: as described, as a step pre-trains it, or of a starter that is installed."""
        for pretraining in self._plan.instances:
            if self._model(pretraining) == pretraining.step.name == id:
                from biorag.training.language_model import Architecture

                sizes = {name: pretraining.use.options[name] for name in Architecture.__dataclass_fields__}
                longest = self._settings(pretraining).training.max_tokens
                return architecture_shape(Architecture(**sizes).configuration(longest))
        if described := models_of(self._plan.recipe).get(id):
            return architecture_shape(described.config)
        installed = id == STARTER_LLM or (id in (STARTER, PLAIN_STARTER) and STARTER_ENCODER.folder() is not None)
        return model_shape(find_base(id)) if installed else None

    def _settings(self, instance: Instance) -> Settings:
        """Return the settings that a step's command would have; on a GPU precision "auto" is bfloat16."""
        options = {name: value for name, value in instance.use.given.items() if "{" not in str(value)}  # no blanks
        values = {**self._plan.settings, **dict(instance.step.settings), **options}
        if self._on_gpu and values.get("precision", "auto") == "auto":
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
        from biorag.training import estimating
        from biorag.training.estimating import MOMENT_BYTES, TrainingBatch, TrainingDevice, epochs_of

        settings, kind = self._settings(instance), instance.use.name.rpartition(" ")[2]
        training, processes = settings.training, instance.step.processes
        longest, lora = training.max_tokens, bool(instance.use.options.get("lora"))
        rows, tokens = self._rows(work, work.of)
        query = training.query_tokens if kind == RERANKER else min(longest, QUERY_TOKENS)
        if kind in (CROSS_ENCODER, LANGUAGE_MODEL):
            batch = TrainingBatch(kind, 0, longest)
        else:
            passages = 1 if kind == QUESTION_GENERATOR else 1 + min(training.hard_negatives, work.negatives)
            batch = TrainingBatch(kind, query, longest, passages, lora)
        bf16 = uses_bf16(settings.retrieval.precision)
        device = TrainingDevice("cuda" if self._on_gpu else "cpu", self.memory, bf16, processes)
        estimated = estimating.estimate(shape, batch, training, device)
        row = min(query, tokens) + batch.passages * min(longest, tokens)
        all_tokens = row * (rows or 0) * epochs_of(training, rows or 1, processes)
        seconds = all_tokens * estimating.operations_of_token(shape, kind, training, lora) / self.speed / processes
        disk = 2 * WEIGHT_BYTES * estimated.parameters + MOMENT_BYTES * estimated.trained  # and a checkpoint's
        rows_in_memory, length = self._rows(work, work.held or work.of)
        letters = CHARACTERS * (min(length, QUERY_TOKENS) + (1 + work.negatives) * length)
        host = processes * (rows_in_memory or 0) * (ROW_BYTES + letters)
        return StepEstimate(seconds if rows else None, estimated.peak, disk, host), estimated.fits(self.memory)

    def _encoding(self, instance: Instance, work: StepWork, shape: ModelShape) -> StepEstimate:
        settings, needed = self._settings(instance), WEIGHT_BYTES * shape.parameters
        rows, tokens = self._rows(work, work.of)
        if rows is None:
            return StepEstimate(None, needed, None)
        snippets, length = int(rows * work.texts), min(tokens, shape.window)
        stored = settings.index.store_tokens or "none"
        workload = Workload(snippets, length, shape.hidden, shape.parameters, shape.multiplied, stored)
        if self._machine:
            rates = stage_rates(workload, self._machine)
            seconds = sum(snippets / rates[stage].value for stage in ("encode", "load", "build"))
        else:
            seconds = FORWARD * shape.multiplied * snippets * length / self.speed
        return StepEstimate(seconds, needed, int(snippets * sizes(workload).indexed))


def elapsed(plan: RecipePlan, estimates: Mapping[str, StepEstimate], jobs: int) -> float:
    """Return the seconds of all steps, of which `jobs` run at a time: no less than those that need each other take."""
    steps, ends, busy = unique(plan.steps), dict[str, float](), 0.0
    for step in steps:
        seconds = estimates[step.key].seconds or 0.0
        ends[step.key] = seconds + max((ends[need.key] for need in step.needs), default=0.0)
        busy += seconds * min(step.processes, jobs)
    return max(*ends.values(), busy / jobs)


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
        "host": max(estimate.host or 0 for estimate in estimates.values()),
        "disk": sum(estimate.disk or 0 for estimate in estimates.values()),
        "cost": sum(server["cost"] for server in servers),
        "servers": servers,
    }
