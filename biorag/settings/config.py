"""The only home of defaults: every setting, its default, its check and where it may be set.

Precedence: command-line flag, `BIORAG_*` variable, `biorag.toml` (or `--config FILE`), default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_data_path
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from biorag.errors import MissingError, UsageError
from biorag.registries import FUSIONS, RERANKERS
from biorag.settings.reranker_chain import Stage, parse_stages
from biorag.utils.network import Server, host_of, is_server, login_apart, without_credentials

STARTER = "starter"
NO_LLM = "none"
EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
DEEPEST = 10_000  # candidates that can be reranked
DEFAULT_FILE = Path("biorag.toml")
PREFIX = "BIORAG_"
LOGINS = frozenset({"qdrant_login", "llm_login", "eutils_login"})
SECRETS = LOGINS | {"qdrant_api_key", "llm_api_key", "eutils_api_key"}
KEYS = {"qdrant_api_key": "QDRANT_API_KEY", "eutils_api_key": "NCBI_API_KEY"}  # variables by their services' names
URLS = ("qdrant", "llm", "eutils")


class Config(BaseModel):
    """All settings of one run; immutable. A variation is `config.replace(k_init=100)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_alias=True, validate_by_name=True)

    home: Path = Field(default_factory=lambda: user_data_path("biorag"), description="where indexes live")
    name: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="index name")
    graph: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="citation graph's name")
    qdrant: str | None = Field(None, description="URL of a Qdrant server; none: embedded Qdrant Edge")
    qdrant_api_key: SecretStr | None = Field(None, description="also QDRANT_API_KEY")
    qdrant_login: SecretStr | None = Field(None, description="user:password of a proxy before it, as in its URL")

    eutils: str = Field(EUTILS, description="URL of NCBI's E-utilities, which 'biorag graph fill' alone asks")
    eutils_api_key: SecretStr | None = Field(None, description="also NCBI_API_KEY: ten requests a second, not three")
    eutils_login: SecretStr | None = Field(None, description="user:password of a proxy before it, as in its URL")

    encoder: str | None = Field(
        None, description="Hugging Face id or directory; none: the index's own, 'starter' for a new index"
    )
    revision: str | None = Field(None, description="revision of a Hugging Face encoder")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto: bf16 where hardware has it")
    similarity: Literal["cosine", "dot"] | None = Field(
        None, description="of the dense vectors; none: the index's own, for a new index the encoder's, else cosine"
    )
    quantize: bool = Field(False, description="keep int8 copies of the dense vectors for search")
    store_tokens: bool = Field(False, description="keep the reranker's token vectors in a new index: faster, larger")
    token_pooling: int = Field(1, ge=1, le=32, description="stored token vectors merged into one, by similarity")
    batch_size: int = Field(1024, ge=1, le=65_536, description="snippets written and made durable at once")
    block_tokens: int = Field(
        0, ge=0, le=100_000, description="tokens of a block of long snippets; 0: the index's own, of a new one whole"
    )
    block_overlap: int | None = Field(None, ge=0, description="tokens that two blocks share; none: a fifth")
    bm25_k: float = Field(0.9, ge=0, description="BM25 term-frequency saturation of a new index")
    bm25_b: float = Field(0.4, ge=0, le=1, description="BM25 length normalisation of a new index")

    mode: Literal["bm25", "dense", "hybrid"] = "hybrid"
    fusion: str = Field("linear", description=FUSIONS.listed())
    lambda_: float = Field(0.03, ge=0, alias="lambda", description="weight of BM25 in the linear fusion")
    rrf_k: int = Field(60, ge=1)
    depth: int = Field(100, ge=1, le=10_000, description="candidates each side gives to the fusion")
    rerank: bool = True
    reranker: str = Field(
        "encoder",
        description=f"STAGE[,STAGE...]: {RERANKERS.names()}, each [@depth]",
    )
    interpolation: float = Field(
        0.5, ge=0, description="weight of the first-stage score added to the reranker's mean MaxSim"
    )
    cross_interpolation: float = Field(
        10.0, ge=0, description="weight of the score before it added to a cross-encoder's log-odds"
    )
    k_init: int = Field(20, ge=1, le=DEEPEST, description="candidates reranked", validate_default=True)
    k: int = Field(5, ge=1, le=10_000, description="snippets kept")
    include_retracted: bool = Field(False, description="answer from retracted articles too")

    llm: str = Field(STARTER, description="'starter', 'none', a GGUF path, hf:REPO/FILE, or a server's URL")
    llm_model: str | None = Field(None, description="model asked of a server; none: its first")
    llm_api_key: SecretStr | None = None
    llm_login: SecretStr | None = Field(None, description="user:password of a proxy before it, as in its URL")
    context_window: int = Field(8192, ge=256, description="tokens of context used, if the model has as many")
    max_tokens: int = Field(256, ge=1, le=32_768, description="cap on generated tokens")
    prompt: Path | None = Field(None, description="template file in place of the built-in one")
    threads: int | None = Field(None, ge=1, description="CPU threads of the generator; none: all cores")
    timeout: float = Field(120.0, gt=0, description="seconds a server may take for one reply")
    retries: int = Field(5, ge=0, le=100, description="times a request is sent again to a server that fails")
    offline: bool = Field(False, description="connect to no host that the command line does not name")
    concurrency: int = Field(4, ge=1, le=64, description="questions that a server is asked at a time")
    cache: bool = Field(True, description="keep the generator's replies, and use those kept from before")
    seed: int = 0

    train_epochs: float = Field(1.0, gt=0, le=1000, description="passes over the training rows")
    train_batch_size: int = Field(32, ge=1, le=65_536, description="rows of one optimizer step in each process")
    train_learning_rate: float = Field(3e-5, gt=0, lt=1, description="peak of AdamW's learning rate, falling to 0")
    train_warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises")
    train_max_tokens: int = Field(256, ge=8, le=8192, description="tokens kept of a passage")
    train_query_tokens: int = Field(32, ge=8, le=512, description="length that a reranker pads queries to")
    train_hard_negatives: int = Field(1, ge=0, le=64, description="mined negatives used of each row that has any")
    train_mini_batch_size: int | None = Field(None, ge=1, description="cached gradients: rows encoded at a time")
    train_gradient_checkpointing: bool = Field(False, description="less memory, a third more time")
    train_lora_rank: int = Field(16, ge=1, le=1024, description="of the matrices that --lora trains")
    train_lora_alpha: float = Field(32.0, gt=0, description="their product counts α / rank times")
    train_validation: float = Field(0.1, ge=0, lt=1, description="share of the questions held out, by their text")
    train_evaluations: int = Field(4, ge=1, le=1000, description="evaluations (and checkpoints) in a run")

    @model_validator(mode="before")
    @classmethod
    def _logins_apart(cls, values: Any) -> Any:
        """Take logins out of URLs, which manifests, reports and messages show."""
        found = dict(values)
        for setting in URLS:
            if isinstance(url := found.get(setting), str) and is_server(url):
                found[setting], login = login_apart(url)
                found |= {f"{setting}_login": login} if login is not None else {}
        return found

    @field_validator("qdrant", "eutils")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not is_server(value):
            raise ValueError("give a URL such as http://localhost:6333")
        return value

    @field_validator(*URLS)
    @classmethod
    def _is_plain(cls, value: str | None) -> str | None:
        if value is not None and is_server(value):
            if "@" in value:
                raise ValueError("write / in a password as %2F, ? as %3F and # as %23, and @ in a path as %40")
            if not host_of(value):
                raise ValueError("its host or port cannot be read: write e.g. http://localhost:8080")
            if "?" in value or "#" in value:
                raise ValueError(
                    "leave out what follows the path; keys go into QDRANT_API_KEY, BIORAG_LLM_API_KEY or NCBI_API_KEY"
                )
        return value

    @field_validator(*SECRETS)
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        text = value.get_secret_value() if value else ""
        if not text.isprintable() or not (text.isascii() or info.field_name in LOGINS):
            raise ValueError("it has characters that cannot be sent: is there a line break at its end?")
        return value

    @field_validator("fusion")
    @classmethod
    def _is_registered(cls, value: str) -> str:
        if value not in FUSIONS:
            raise ValueError(f"use {FUSIONS.names()}")
        return value

    @field_validator("reranker")
    @classmethod
    def _is_chain(cls, value: str) -> str:
        parse_stages(value, DEEPEST)
        return value

    @field_validator("k_init")
    @classmethod
    def _holds_the_chain(cls, value: int, info: ValidationInfo) -> int:
        if chain := info.data.get("reranker"):
            parse_stages(chain, value)
        return value

    @field_validator("home", "prompt")
    @classmethod
    def _expanded(cls, value: Path | None) -> Path | None:
        return value.expanduser() if value else value

    def server(self, url: str, kind: Literal["qdrant", "llm", "eutils"], at_a_time: int = 1) -> Server:
        """Return how the server at `url` is reached, with the key and login of its kind."""
        key, login = getattr(self, f"{kind}_api_key"), getattr(self, f"{kind}_login")
        return Server(
            url,
            self.timeout,
            self.retries,
            key.get_secret_value() if key else None,
            login.get_secret_value() if login else None,
            at_a_time,
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The rerankers in their order, which `rerank` switches on and off."""
        return parse_stages(self.reranker, self.k_init)

    @property
    def indexes(self) -> Path:
        """The folder that holds one folder per index."""
        return self.home / "indexes"

    @property
    def graphs(self) -> Path:
        """The folder that holds one folder per citation graph."""
        return self.home / "graphs"

    @property
    def replies(self) -> Path:
        """The folder of replies kept by `cache`; deleting it clears them."""
        return self.home / "cache" / "replies"

    @property
    def citations(self) -> Path:
        """The file of what the E-utilities answered; deleting it makes 'biorag graph fill' ask again."""
        return self.home / "cache" / "citations.jsonl"

    @property
    def trials(self) -> Path:
        """The folder that records which GGUF files were tried out and went well."""
        return self.home / "cache" / "trials"

    def replace(self, **changes: Any) -> Config:
        """Return a checked copy with some settings changed; `lambda_` may be given as `lambda`."""
        return checked({**_spelled(self.model_dump()), **_spelled(changes)})

    def public(self) -> dict[str, Any]:
        """Return the settings that determine results, without secrets and machine paths, for reports."""
        hidden = {"home", "threads", "timeout", "retries", "offline", "batch_size", "concurrency", "cache"}
        apart = {"graph", "eutils"}  # a mined file tells its graph itself
        return self.model_dump(mode="json", by_alias=True, exclude=hidden | apart | SECRETS | TRAINING)

    def training(self) -> dict[str, Any]:
        """Return the settings that determine what training gives, for its manifest."""
        return self.model_dump(mode="json", include=TRAINING | {"seed", "precision"})


TRAINING = {name for name in Config.model_fields if name.startswith("train_")}


def checked(values: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> Config:
    """Return the configuration of these values.

    Raises
    ------
    UsageError
        Naming the setting, where it was set (`sources`), its value and what is allowed.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "configuration"
        place = (sources or {}).get(name)
        given = first["input"]
        hidden = name in SECRETS or (name in URLS and "@" in str(given))
        value = "…" if hidden else repr(without_credentials(str(given)) if name in URLS else given)
        where = f" (set in {place})" if place else ""
        if first["type"] == "extra_forbidden":
            raise UsageError(f"unknown setting {name!r}{where}: 'biorag info --settings' lists them all") from None
        raise UsageError(f"{name}={value}{where}: {first['msg']}") from None


def _spelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values under the names that files and reports use: `lambda`, not `lambda_`."""
    fields = Config.model_fields
    return {(fields[name].alias or name) if name in fields else name: value for name, value in values.items()}


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def setting_names() -> list[str]:
    """Return every setting's name as TOML files, reports and (upper-cased) variables spell it."""
    return [info.alias or name for name, info in Config.model_fields.items()]


def load_config(flags: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Merge the sources of settings into one checked configuration.

    `flags` whose value is None were not given. `file` must exist if named; without it `biorag.toml` of
    the working directory is read if there is one.

    Raises
    ------
    MissingError
        If the named file is not there.
    UsageError
        If a file is no TOML, or a setting is unknown or out of range.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for place, found in (
        (str(file or DEFAULT_FILE), _from_file(file)),
        ("the environment", _from_environment(environ)),
        ("an option", {key: value for key, value in flags.items() if value is not None}),
    ):
        values.update(_spelled(found))
        sources.update(dict.fromkeys(_spelled(found), place))
    return checked(values, sources)


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    if not path.is_file():
        if file is None:
            return {}
        raise MissingError(f"configuration file {file} is not there")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"configuration file {path} is no TOML: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    names = {PREFIX + name.upper(): name for name in setting_names()}
    found = {name: environ[variable] for variable, name in names.items() if environ.get(variable)}
    for name, variable in KEYS.items():
        if name not in found and environ.get(variable):
            found[name] = environ[variable]
    return found
