"""The TOML files of recipes and sweeps, and the settings that all their steps share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

from biorag.errors import BadInputError, UsageError
from biorag.settings.settings import SECRETS, URLS, checked
from biorag.settings.sources import PREFIX
from biorag.utils.files import sha256_of, write_text
from biorag.utils.network import is_server, login_apart
from biorag.utils.parsing import parse_toml

M = TypeVar("M", bound=BaseModel)
SettingValue = str | int | float | bool


def _are_settings(values: Mapping[str, SettingValue]) -> Mapping[str, SettingValue]:
    try:
        checked(values)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return values


SharedSettings = Annotated[Mapping[str, SettingValue], AfterValidator(_are_settings)]


def read_toml(path: Path, kind: type[M]) -> M:
    """Read a file that is there.

    Raises
    ------
    BadInputError
        If it is not valid TOML, or a key is unknown or has a value that is not allowed.
    """
    try:
        return kind.model_validate(parse_toml(path.read_bytes(), str(path)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        value = "" if isinstance(first["input"], dict) else f" (it has {first['input']!r})"
        message = first["msg"].removeprefix("Value error, ")
        raise BadInputError(f"{path}: {place or 'the file'}: {message}{value}") from None


def check_no_secrets(path: Path, settings: Mapping[str, SettingValue], urls: Mapping[str, str]) -> None:
    """Refuse keys and logins in a file whose values reports repeat.

    Parameters
    ----------
    urls : settings that may be URLs, beside those in `settings`

    Raises
    ------
    BadInputError
        Naming the variable in which the secret belongs.
    """
    named = [*((name, str(settings.get(name, ""))) for name in URLS), *urls.items()]
    logins = [f"{name}_login" for name, url in named if is_server(url) and login_apart(url)[1] is not None]
    if secrets := [name for name in settings if name in SECRETS] + logins:
        variable = PREFIX + secrets[0].upper()
        raise BadInputError(f"{path} has a key or a login, which reports would repeat: set {variable}")


def write_settings(settings: Mapping[str, SettingValue], out: Path) -> Path:
    """Write settings as the configuration file that all steps read."""
    path = out / "biorag.toml"
    write_text(path, "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    return path


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file, or the names and hashes of a folder's files."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return json.dumps([(str(file.relative_to(path)), sha256_of(file)) for file in files])
