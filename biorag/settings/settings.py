"""All settings of a run: six sections, and the few that belong to none.

Files, variables, flags and reports know no sections: there a setting goes by one flat name (`k_init`, `train_epochs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from platformdirs import user_data_path
from pydantic import SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from biorag.errors import UsageError, suggestion
from biorag.settings.generation import AbstentionSettings, GenerationSettings
from biorag.settings.index import NAME, IndexSettings
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.section import (
    BoundSecret,
    Effect,
    Option,
    Section,
    choices_of,
    expanded,
    option,
    option_of,
    setting,
)
from biorag.settings.services import ServiceSettings
from biorag.settings.training import TrainingSettings
from biorag.utils.network import is_server, login_apart, origin_of, without_credentials
from biorag.utils.parsing import advice_of
from biorag.utils.registry import or_list
from biorag.utils.text import cut

INDEXES = "indexes"  # the folder of indexes in the home
UPLOADS = "uploads"  # the folder in it of papers that people sent
OWN = (INDEXES, "cache", "encoders", "exports", "graphs", "records", UPLOADS, "zotero")  # in the home
AN_OPTION = "an option"  # as messages name that source
SHOWN = 200  # characters of a bad value that a message repeats
URLS = ("qdrant", "llm", "reader", "eutils", "crossref")


class HomeFolder:
    """A folder of the home of settings, by its name; of the class its path below a home."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, settings: Settings | None, _: type[Settings]) -> Path:
        return settings.home / self._name if settings else Path(self._name)


class Settings(Section):
    """All settings of one run; immutable. A variation is `settings.replace(k_init=100)`."""

    home: Path = setting(
        PydanticUndefined,
        "Folder of indexes, graphs and cached replies.",
        default_factory=lambda: user_data_path("biorag"),
        effect=Effect.NONE,
    )
    graph: str = option("default", "Citation graph to use.", pattern=NAME, effect=Effect.NONE)
    services: ServiceSettings = ServiceSettings()
    index: IndexSettings = IndexSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    generation: GenerationSettings = GenerationSettings()
    abstention: AbstentionSettings = AbstentionSettings()
    seed: int = option(0, "Seed of all random draws.", bounds=(0, 2**32 - 1))
    training: TrainingSettings = TrainingSettings()

    indexes: ClassVar = HomeFolder(INDEXES)  # a folder for each index
    encoders: ClassVar = HomeFolder("encoders")  # made of two models, or with other prompts; indexes need theirs
    exports: ClassVar = HomeFolder("exports")  # encoders in ONNX; without them torch encodes questions
    graphs: ClassVar = HomeFolder("graphs")  # a folder for each citation graph
    records: ClassVar = HomeFolder("records")  # of papers, as services gave them, each under the hash of its paper
    uploads: ClassVar = HomeFolder(UPLOADS)  # papers that were sent to `biorag serve`, a folder for each index
    stages: ClassVar = HomeFolder("stages")  # what stands between the stages of an indexing run, for each index
    cache: ClassVar = HomeFolder("cache")  # files that may be deleted at any time

    @classmethod
    def of(cls, **values: Any) -> Settings:
        """Return the settings of values by their flat names, `lambda` as `lambda_`; raises as `checked` does."""
        return checked(_spelled(values))

    @field_validator("home")
    @classmethod
    def _expanded(cls, value: Path) -> Path:
        return expanded(value)

    def replace(self, **changes: Any) -> Settings:
        """Return a checked copy with some settings changed, by their flat names as in `of`; defaults stay defaults."""
        return checked({**self.given(), **_spelled(changes)})

    def given(self) -> dict[str, Any]:
        """Return every setting that was given, by its flat name."""
        values: dict[str, Any] = {}
        for name, value in super().flat().items():
            values |= value.given() if isinstance(value, Section) else {name: value}
        return values

    def flat(self) -> dict[str, Any]:
        """Return every setting by its flat name."""
        values: dict[str, Any] = {}
        for name, value in super().flat().items():
            values |= value.flat() if isinstance(value, Section) else {name: value}
        return values

    def flat_json(self) -> dict[str, Any]:
        """Return every setting by its flat name, as JSON values; a secret as asterisks."""
        values: dict[str, Any] = {}
        for name, value in self.model_dump(mode="json", by_alias=True).items():
            values |= value if name in SECTIONS else {name: value}
        return values

    def public(self) -> dict[str, Any]:
        """Return the settings that determine results of a search or an answer, without secrets and machine paths."""
        searched = (self.services, self.index, self.retrieval, self.generation)
        return {name: value for section in searched for name, value in section.public().items()} | {"seed": self.seed}

    def training_identity(self) -> dict[str, Any]:
        """Return the settings that determine what training gives, for its manifest."""
        return {**self.training.identity(), "precision": self.retrieval.precision, "seed": self.seed}


class SettingField(NamedTuple):
    """Where a setting stands: in a section, or in `Settings` itself (None), under a name that has no prefix."""

    section: str | None
    name: str
    field: FieldInfo

    @property
    def option(self) -> Option:
        """How it is set besides its name in files."""
        return option_of(self.field)

    @property
    def flag(self) -> str:
        """The option as messages name it; empty for none."""
        return f"--{self.name.replace('_', '-')}" if self.option.flag else ""


def _places() -> Iterator[tuple[str, SettingField]]:
    for name, info in Settings.model_fields.items():
        if name not in SECTIONS:
            yield name, SettingField(None, name, info)
            continue
        for inner, field in SECTIONS[name].model_fields.items():
            yield field.alias or inner, SettingField(name, inner.removesuffix("_"), field)


SECTIONS: Mapping[str, type[Section]] = {
    name: info.annotation
    for name, info in Settings.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Section)
}
FIELDS: Mapping[str, SettingField] = dict(_places())
SECRETS = frozenset(name for name, entry in FIELDS.items() if entry.field.annotation == SecretStr | None)
WITHOUT_EFFECT = frozenset(name for name, entry in FIELDS.items() if entry.option.effect is Effect.NONE)


def checked(values: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of values by flat names; raise `UsageError` naming setting, source, value and what to use."""
    sources, nested = sources or {}, dict[str, Any]()
    for name, value in _logins_apart(values).items():
        if name not in FIELDS:
            raise UsageError(
                f"unknown setting {name!r}{_set_in(sources.get(name))}: 'biorag info --settings' lists them all"
                f"{suggestion(name, FIELDS)}"
            )
        section = FIELDS[name].section
        (nested.setdefault(section, {}) if section else nested)[name] = value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise _not_allowed(error, sources) from None


def _not_allowed(error: ValidationError, sources: Mapping[str, str]) -> UsageError:
    """Return the error for a value that is not allowed, with the nearest one that is."""
    first = error.errors()[0]
    name, value = str(first["loc"][-1]), first["input"]
    hidden = name in SECRETS or (name in URLS and "@" in str(value))
    shown = "…" if hidden else cut(repr(without_credentials(str(value)) if name in URLS else value), SHOWN)
    entry = FIELDS.get(name)
    choices = choices_of(entry.field) if entry else ()
    near = suggestion(str(value), choices)
    reason = f"use {or_list(choices)}" if choices else advice_of(first)
    if entry and entry.flag and sources.get(name) == AN_OPTION:
        return UsageError(f"{entry.flag} {shown}: {reason}{near}")
    return UsageError(f"{name}={shown}{_set_in(sources.get(name))}: {reason}{near}")


def _set_in(source: str | None) -> str:
    return f" (set in {source})" if source and source != AN_OPTION else ""


def _logins_apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """Take logins out of URLs, which manifests, reports and messages show."""
    apart = dict(values)
    for name in URLS:
        if isinstance(url := apart.get(name), str) and is_server(url):
            apart[name], login = login_apart(url)
            apart |= {f"{name}_login": BoundSecret(login, origin_of(apart[name]))} if login is not None else {}
    return apart


def _spelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by their flat names: `lambda`, which Python reserves, is written `lambda_` there."""
    return {name.removesuffix("_"): value for name, value in values.items()}
