"""What a recipe's steps take, before they run: seconds by operations and the device's speed, and memory."""

from __future__ import annotations

from dataclasses import dataclass

from biorag.models.resources import FORWARD, TRAINING, activation_bytes, operations, training_bytes
from biorag.recipes.plan import Instance, Plan
from biorag.settings.settings import checked
from biorag.settings.training import TrainingSettings

ACTIVATIONS = 18  # numbers that a layer's linear layers read and write, for each token and dimension
PROGRAM_BYTES = 700_000_000  # Python with its libraries
DEFAULT_TOKENS = 128  # of a text, where a recipe does not say
OPERATIONS = {"encode": FORWARD, "train": TRAINING}


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Seconds at the speed of large matrix products, so a lower bound, and about how many bytes; None if not known."""

    name: str
    seconds: float | None
    bytes: int | None


def estimates(plan: Plan) -> list[StepEstimate]:
    """Return the estimate of each step of a plan."""
    import torch

    from biorag.models.loading import best_device, uses_bf16

    settings = checked(plan.scale.settings)
    kind = torch.bfloat16 if uses_bf16(settings.retrieval.precision) else torch.float32
    speed = operations(best_device(), kind)
    return [_estimate(plan, instance, settings.training, speed) for instance in plan.instances]


def _estimate(plan: Plan, instance: Instance, training: TrainingSettings, speed: float) -> StepEstimate:
    work, model = instance.template.work, plan.backbone
    if work is None:
        return StepEstimate(instance.step.name, None, None)
    rows, tokens = _size(plan, work.of), work.tokens or _tokens(plan, work.of)
    trained, stored = 0.0, 0
    if work.kind == "train":
        tokens = min(tokens, training.max_tokens)
        batch = min(training.mini_batch_size or training.batch_size, training.batch_size) * work.texts * tokens
        trained, stored = model.parameters, activation_bytes(ACTIVATIONS * model.layers * model.hidden, batch)
    needed = PROGRAM_BYTES + training_bytes(model.parameters, trained) + stored
    if rows is None:
        return StepEstimate(instance.step.name, None, needed)
    passes = OPERATIONS[work.kind] * (training.epochs if work.kind == "train" else 1)
    return StepEstimate(instance.step.name, passes * model.multiplied * rows * work.texts * tokens / speed, needed)


def _size(plan: Plan, of: str | int) -> int | None:
    return of if isinstance(of, int) else plan.recipe.inputs[of].size.get(plan.scale_name)


def _tokens(plan: Plan, of: str | int) -> int:
    return DEFAULT_TOKENS if isinstance(of, int) else plan.recipe.inputs[of].tokens
