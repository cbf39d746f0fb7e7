"""Fixtures: a scratch home, the shared real data if it is there, tiny random models, a demo index."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

import hypothesis
import pytest

from biorag import engine, indexing
from biorag.corpus.sources import demo_file
from biorag.settings.settings import Settings
from biorag.types import Snippet
from biorag.utils.network import restrict
from biorag.utils.secrets import forget
from tests.cli import invoke, succeeded, with_exports

if TYPE_CHECKING:
    from tests.loopback import Script

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["BIORAG_READ_AGAIN"] = "false"  # it takes a second a question; tests/answering/test_second_reader.py has it
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
if (worker := os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")) and hasattr(os, "sched_setaffinity"):
    # One core a worker and what it starts: threads that spin while they wait would slow the workers beside them.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker) % len(cores)]})
gc.disable()  # until all is imported
# A shell lets what it runs in the background ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test fails because the machine is slow.
ANY_MACHINE = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("few", ANY_MACHINE, max_examples=15, derandomize=True)
hypothesis.settings.register_profile("quick", ANY_MACHINE, max_examples=5, derandomize=True)  # of `make check`
hypothesis.settings.register_profile("campaign", ANY_MACHINE, max_examples=300)  # of `make test-all`
hypothesis.settings.load_profile("few")
LONGEST = (  # files, by the seconds that their tests take
    *("test_main_paths", "test_rehearsal", "test_attacks", "test_folder", "test_page", "test_hostile_files"),
    *("test_pages", "test_edge", "test_estimating", "test_bench_mteb", "test_train", "test_search_and_ask"),
    *("test_zotero", "test_outputs", "test_llama", "test_private", "test_recipes", "test_generate", "test_server"),
)
KEPT_VARIABLES = {"BIORAG_TEST_QDRANT_URL", "BIORAG_READ_AGAIN"}
MODELS = {"tiny_encoder", "tiny_cross_encoder", "tiny_modernbert", "tiny_decoder", "demo_home"}
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
WORDS = ["aspirin", "ibuprofen", "warfarin", "heparin", "liver", "kidney", "heart", "lung", "fever", "pain", "gene"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the files of which every test needs a model, where these are left out."""
    if "not models" not in config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return re.search(r"^pytestmark = pytest\.mark\.(models|slow)$", text, re.MULTILINE) is not None or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests whose fixtures are models, and those of the starter models; the longest files come first.

    Each process keeps to whole files: a long one at the end would leave the other processes idle.
    """
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    for item in items:
        if item.get_closest_marker("slow") or MODELS & set(item.fixturenames):
            item.add_marker("models")


def pytest_collection_finish() -> None:
    """Leave what the imports made out of every later collection of garbage; training asks for several."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path, tmp_path_factory):
    """No setting of the developer's machine reaches a test; home and configuration are scratch, no line wraps."""
    for name in list(os.environ):
        if (name.startswith("BIORAG_") and name not in KEPT_VARIABLES) or name in ("QDRANT_API_KEY", "NCBI_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # which `main` sets


def of_all_workers(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the processes of a run share."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Wait until no other process of the run holds the lock."""
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process which needs it makes for all."""
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            make(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(autouse=True, scope="session")
def shared_exports(tmp_path_factory) -> Iterator[None]:
    """An encoder is exported once for all tests, not for each scratch home, by one process at a time."""
    folder = of_all_workers(tmp_path_factory) / "exports"
    folder.mkdir(exist_ok=True)
    export = engine.ensure_exported

    def alone(*given) -> None:
        with locked(folder / "lock"):
            export(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "exports", property(lambda _: folder))
        patch.setattr(engine, "ensure_exported", alone)
        patch.setattr(indexing, "ensure_exported", alone)
        yield


@pytest.fixture
def own_exports(monkeypatch) -> None:
    """Keep the exports of encoders in the home, as ever outside of tests."""
    monkeypatch.setattr(Settings, "exports", property(lambda settings: settings.home / "exports"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No waiting between tries, nor for a server; and no test is left offline by another, nor with its secrets."""
    monkeypatch.setattr("biorag.utils.http.BACKOFF", 0.0005)
    if load := sys.modules.get("biorag.indexes.collection"):  # which imports a heavy library
        monkeypatch.setattr(load, "PAUSE", 0.0)
    yield
    restrict(None)
    forget()


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings.of(home=tmp_path / "home", name="test")


@pytest.fixture
def server() -> Iterator[Script]:
    """An OpenAI-compatible server with scripted answers."""
    from tests.loopback import Script

    with closing(Script()) as script:
        yield script


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the shared development data is not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def snippets() -> list[Snippet]:
    """Twelve small snippets on distinct subjects."""
    texts = [
        ("Aspirin and fever", "Aspirin lowers fever and relieves pain by blocking cyclooxygenase."),
        ("Warfarin", "Warfarin blocks vitamin K recycling and thins the blood."),
        ("Heparin", "Heparin activates antithrombin and acts at once."),
        ("Metformin", "Metformin suppresses glucose production in the liver."),
        ("Insulin", "Insulin moves glucose into muscle and fat cells."),
        ("Malaria", "Malaria is caused by Plasmodium parasites carried by mosquitoes."),
        ("Tuberculosis", "Tuberculosis is treated with isoniazid and rifampicin for months."),
        ("Asthma?", "Asthma narrows the airways, and inhaled steroids calm them."),
        ("", "Penicillin breaks the bacterial cell wall."),
        ("Statins", "Statins inhibit HMG-CoA reductase and lower cholesterol."),
        ("Digoxin", "Digoxin slows the heart by vagal tone and blocks the sodium pump."),
        ("Levodopa", "Levodopa is turned into dopamine in the brain of people with Parkinson disease."),
    ]
    return [
        Snippet(f"s{n}", title, content, 1000 + n, {"year": 2000 + n, "type": ("Trial", "Review")[n % 2]})
        for n, (title, content) in enumerate(texts)
    ]


def write_medrag(path: Path, snippets: list[Snippet]) -> Path:
    """Write snippets as MedRAG JSONL."""
    rows = [
        {"id": s.id, "title": s.title, "content": s.content, "contents": s.contents, "PMID": s.pmid, **s.metadata}
        for s in snippets
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_judged(folder: Path, queries: Mapping[str, str], judged: Iterable[tuple[str, str, int]]) -> Path:
    """Write questions and judgements (question, snippet, grade) in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"_id": id, "text": text}) for id, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    lines = ["\t".join(map(str, row)) + "\n" for row in [("query-id", "corpus-id", "score"), *judged]]
    (folder / "qrels" / "test.tsv").write_text("".join(lines))
    return folder


def write_demo_questions(folder: Path) -> Path:
    """Write the questions of the demonstration, judged by the snippets that they were made from."""
    tasks = json.loads(demo_file("benchmark.json").read_bytes()).values()
    records = {id: record for task in tasks for id, record in task.items()}
    judged = [(id, snippet, 1) for id, record in records.items() for snippet in record["snippets"]]
    return write_judged(folder, {id: record["question"] for id, record in records.items()}, judged)


@pytest.fixture
def corpus_file(tmp_path, snippets) -> Path:
    return write_medrag(tmp_path / "corpus.jsonl", snippets)


def _tiny_tokenizer(folder: Path) -> None:
    from transformers import BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    pieces = [f"##{letter}" for letter in ascii_lowercase]
    vocabulary = [*special, *WORDS, *ascii_lowercase, *pieces, ".", ",", "?"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def _tiny_bert(folder: Path, seed: int, **sizes: int):
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    _tiny_tokenizer(folder)
    torch.manual_seed(seed)
    sizes = TINY | sizes
    model = BertModel(BertConfig(vocab_size=128, num_attention_heads=2, max_position_embeddings=128, **sizes))
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory) -> Path:
    """A sentence-transformers directory of a tiny random BERT, 32-d."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path_factory.mktemp("models")
    _tiny_bert(folder / "bert", seed=1)
    SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory, tiny_encoder) -> Path:
    """A cross-encoder of one output: the tiny BERT with a random head, whose scores are spread."""
    import torch
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("cross-encoder")
    torch.manual_seed(3)
    model = CrossEncoder(str(tiny_encoder), num_labels=1, device="cpu")
    with torch.no_grad():
        model[0].model.classifier.weight.mul_(100)
    model.save(str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_modernbert(tmp_path_factory) -> Path:
    """A bare tiny random ModernBERT, 48-d, as a transformers directory without pooling."""
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    folder = tmp_path_factory.mktemp("modernbert")
    _tiny_tokenizer(folder)
    torch.manual_seed(2)
    config = ModernBertConfig(
        vocab_size=128,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
    )
    ModernBertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory) -> Path:
    """A causal language model as a transformers directory: a tiny random Llama, 32-d, whose BOS comes first."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("decoder")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    tokenizer.train_from_iterator(WORDS, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(4)
    own = {"vocab_size": tokenizer.get_vocab_size(), "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 1}
    config = LlamaConfig(num_attention_heads=4, max_position_embeddings=1024, **own, **TINY)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory) -> Path:
    """A home with the demonstration corpus indexed by the starter encoder as index `default`; exports are linked."""
    made = made_once(
        of_all_workers(tmp_path_factory) / "demo",
        lambda home: succeeded(invoke("index", "demo", "--name", "default", home=home)),
    )
    return with_exports(shutil.copytree(made, tmp_path_factory.mktemp("demo-home") / "home"))


@pytest.fixture(scope="session")
def small_home(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A home whose index `default` holds the twelve snippets under the tiny encoder; tests do not write to it."""
    home = tmp_path_factory.mktemp("small-home")
    corpus = write_medrag(home / "corpus.jsonl", snippets)
    succeeded(invoke("index", corpus, "--encoder", tiny_encoder, home=home))
    return home
