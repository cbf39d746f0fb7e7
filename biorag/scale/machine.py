"""A machine as its TOML file describes it: what it has, what it costs, and how fast it is."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from biorag.errors import BadInputError, MissingError
from biorag.utils.files import write_text
from biorag.utils.nearest import suggestion
from biorag.utils.parsing import parse_toml, read_regular

REFERENCE = "reference.toml"  # the packaged measurement, for rates that nothing else gives
GIGABYTE = 1e9
DEFAULT_UTILISATION = 0.2  # of a GPU's peak, an assumption: small encoders reach a small share of it


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Rates(_Table):
    """What the user knows of a machine's speed; of a machine with GPUs the encoding is that of one GPU."""

    export_snippets_per_second: float | None = Field(default=None, gt=0)
    prepare_snippets_per_second: float | None = Field(default=None, gt=0)
    encode_snippets_per_second: float | None = Field(default=None, gt=0)
    load_snippets_per_second: float | None = Field(default=None, gt=0)
    build_snippets_per_second: float | None = Field(default=None, gt=0)
    question_milliseconds: float | None = Field(default=None, gt=0)
    first_stage_milliseconds_per_million: float | None = Field(default=None, gt=0)


class Measured(_Table):
    """Rates that `biorag plan --measure` found on `cores` cores, and what they hold for.

    Attributes
    ----------
    gpus : GPUs that encoded: 1, or 0 where the cores did
    multiplied : parameters of the encoder that every token is multiplied with
    tokens : of a snippet, cut at the encoder's window
    store_tokens : whether token vectors were made and loaded
    built : snippets in the index whose graph was built
    load : mean number of running processes in the minute before
    """

    processor: str
    cores: int = Field(ge=1)
    gpus: int = Field(default=0, ge=0)
    multiplied: int = Field(ge=1)
    tokens: float = Field(gt=0)
    store_tokens: bool
    built: int = Field(ge=2)
    load: float | None = Field(default=None, ge=0)
    export_snippets_per_second: float = Field(gt=0)
    prepare_snippets_per_second: float = Field(gt=0)
    encode_snippets_per_second: float = Field(gt=0)
    load_snippets_per_second: float = Field(gt=0)
    load_without_tokens_snippets_per_second: float | None = Field(default=None, gt=0)
    build_snippets_per_second: float = Field(gt=0)
    question_milliseconds: float | None = Field(default=None, gt=0)
    first_stage_milliseconds_per_million: float | None = Field(default=None, gt=0)


class Machine(_Table):
    """A kind of machine, and how many there are. A gigabyte is 10^9 bytes."""

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    disk_gb: float = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    gpu_tflops: float | None = Field(default=None, gt=0)
    gpu_utilisation: float = Field(default=DEFAULT_UTILISATION, gt=0, le=1)
    network_gb_per_second: float | None = Field(default=None, gt=0)
    price_per_hour: float | None = Field(default=None, ge=0)
    currency: str = "USD"
    rates: Rates = Rates()
    measured: Measured | None = None


TABLES: dict[str, type[BaseModel]] = {"rates": Rates, "measured": Measured}


def load_machine(path: Path) -> Machine:
    """Read a machine's file.

    Raises
    ------
    MissingError
        If it is not there.
    BadInputError
        If it is not valid TOML, a key is unknown or missing, or a value is not allowed.
    """
    try:
        values = parse_toml(read_regular(path), str(path))
    except FileNotFoundError:
        raise MissingError(f"--machine {path} is not there: docs/machines has examples to copy") from None
    try:
        machine = Machine.model_validate(values)
    except ValidationError as error:
        raise BadInputError(f"--machine {path}: {_fault(error)}") from None
    measured = machine.measured is not None and machine.measured.gpus > 0
    if machine.gpus and not (machine.gpu_tflops or machine.rates.encode_snippets_per_second or measured):
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
    known = (TABLES[tables[0]] if tables else Machine).model_fields
    return f"there is no key {name!r}: use one of {', '.join(known)}{suggestion(key, known)}"


def reference() -> Measured:
    """Return the packaged measurement."""
    path = Path(str(resources.files("biorag") / "scale" / REFERENCE))
    measured = load_machine(path).measured
    assert measured, "the packaged file is a measurement"
    return measured


def write_machine(path: Path, machine: Machine, heading: str) -> None:
    """Write a machine's file under a heading; values that are not set are left out."""
    values = machine.model_dump(exclude_none=True)
    tables = {name: values.pop(name) for name in TABLES if values.get(name)}
    values = {name: value for name, value in values.items() if value != {}}
    lines = _lines(values)
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    write_text(path, heading + "".join(f"{line}\n" for line in lines))


def _lines(values: dict[str, object]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
