"""A kind of machine as its TOML file describes it: its hardware, its price, and its rates."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from biorag.errors import BadInputError, MissingError, suggestion
from biorag.utils.parsing import parse_toml, read_regular

GIGABYTE = 1e9


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Rates(_Table):
    """What is known of a machine's speed; with GPUs, `encode_snippets_per_second` is one GPU's."""

    export_snippets_per_second: PositiveFloat | None = None
    prepare_snippets_per_second: PositiveFloat | None = None
    encode_snippets_per_second: PositiveFloat | None = None
    load_snippets_per_second: PositiveFloat | None = None
    build_snippets_per_second: PositiveFloat | None = None
    question_milliseconds: PositiveFloat | None = None
    first_stage_milliseconds_per_million: PositiveFloat | None = None


class MachineKind(_Table):
    """A kind of machine, and how many there are. A gigabyte is 10^9 bytes."""

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    cores: PositiveInt
    memory_gb: PositiveFloat
    disk_gb: PositiveFloat
    gpus: int = Field(default=0, ge=0)
    gpu_tflops: PositiveFloat | None = None
    gpu_utilisation: float = Field(default=0.2, gt=0, le=1)  # an assumption: small encoders reach a small share
    price_per_hour: float | None = Field(default=None, ge=0)
    currency: str = "USD"
    rates: Rates = Rates()


def load_machine(path: Path) -> MachineKind:
    """Read a machine's file.

    Raises `MissingError` if it is not there; `BadInputError` if it is not valid TOML, a key is unknown or missing, or a
    value is not allowed.
    """
    try:
        machine = MachineKind.model_validate(parse_toml(read_regular(path), str(path)))
    except FileNotFoundError:
        raise MissingError(f"--machine {path} is not there: docs/machines has examples to copy") from None
    except ValidationError as error:
        raise BadInputError(f"--machine {path}: {_fault(error)}") from None
    if machine.gpus and not (machine.gpu_tflops or machine.rates.encode_snippets_per_second):
        raise BadInputError(
            f"--machine {path} has gpus = {machine.gpus} of unknown speed: add gpu_tflops, or "
            "encode_snippets_per_second under [rates]"
        )
    return machine


def _fault(error: ValidationError) -> str:
    """Return the first fault in words, of an unknown key with the nearest known one."""
    first = error.errors()[0]
    *tables, key = map(str, first["loc"])
    name = ".".join([*tables, key])
    if first["type"] == "missing":
        return f"{name} is missing: add it"
    if first["type"] != "extra_forbidden":
        return f"{name} = {first['input']!r} cannot be used: {first['msg']}"
    known = (Rates if tables else MachineKind).model_fields
    return f"there is no key {name!r}: use one of {', '.join(known)}{suggestion(key, known)}"
