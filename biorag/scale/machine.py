"""A machine as its TOML file describes it: its hardware, its price, and its rates."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from biorag.errors import BadInputError, MissingError, suggestion
from biorag.utils.files import write_text
from biorag.utils.parsing import parse_toml, read_regular

REFERENCE = "reference.toml"  # the packaged measurement, for rates that a machine's file does not give
GIGABYTE = 1e9


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Rates(_Table):
    """Speeds of a machine; with GPUs, `encode_snippets_per_second` is one GPU's.

    Rates that were measured hold for so many `cores`, an encoder with `multiplied` parameters in its linear layers,
    snippets of `tokens` on average, and a graph of `built` snippets; without these they hold for any work.
    """

    cores: int | None = Field(default=None, ge=1)
    multiplied: int = Field(default=0, ge=0)
    tokens: float = Field(default=0, ge=0)
    built: int = Field(default=0, ge=0)
    export_snippets_per_second: float | None = Field(default=None, gt=0)
    prepare_snippets_per_second: float | None = Field(default=None, gt=0)
    encode_snippets_per_second: float | None = Field(default=None, gt=0)
    load_snippets_per_second: float | None = Field(default=None, gt=0)
    load_without_tokens_snippets_per_second: float | None = Field(default=None, gt=0)
    build_snippets_per_second: float | None = Field(default=None, gt=0)
    question_milliseconds: float | None = Field(default=None, gt=0)
    first_stage_milliseconds_per_million: float | None = Field(default=None, gt=0)


class MachineKind(_Table):
    """A kind of machine, and how many there are. A gigabyte is 10^9 bytes."""

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    disk_gb: float = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu_tflops: float | None = Field(default=None, gt=0)
    gpu_utilisation: float = Field(default=0.2, gt=0, le=1)  # an assumption: small encoders reach a small share
    price_per_hour: float | None = Field(default=None, ge=0)
    currency: str = "USD"
    rates: Rates = Rates()


def load_machine(path: Path) -> MachineKind:
    """Read a machine's file.

    Raises
    ------
    MissingError
        If it is not there.
    BadInputError
        If it is not valid TOML, a key is unknown or missing, or a value is not allowed.
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


def reference() -> Rates:
    """Return the packaged measurement."""
    return load_machine(Path(str(resources.files("biorag") / "scale" / REFERENCE))).rates


def write_machine(path: Path, machine: MachineKind, heading: str) -> None:
    """Write a machine's file under a heading; values that are not set are left out."""
    values = machine.model_dump(exclude_none=True, exclude_defaults=True)
    rates = values.pop("rates", {})
    lines = [*_lines(values), "", "[rates]", *_lines(rates)]
    write_text(path, heading + "".join(f"{line}\n" for line in lines))


def _lines(values: dict[str, object]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
