"""What is installed is whole: the wheel, the sdist, and what the container's files promise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
CLUSTER = yaml.safe_load((ROOT / "compose.cluster.yaml").read_text(encoding="utf-8"))
ALL_SERVICES = [(file, name) for file in (COMPOSE, CLUSTER) for name in file["services"]]


# --- the wheel and the sdist --------------------------------------------------------------------------------


def built(kind: str, source: Path, folder: Path) -> Path:
    """Build an `sdist` or a `wheel` of a source tree; return the one file it is."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """A wheel made of the sdist alone, as pip makes it where there is no wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return built("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run the commands of a fresh environment that has the wheel, and this environment's packages below it."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    place = {"base": str(folder), "platbase": str(folder)}
    own = Path(sysconfig.get_path("purelib", vars=place))
    (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)

    def run(program: str, *words: object) -> str:
        names = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        home = {"BIORAG_HOME": str(folder / "home"), "HOME": str(folder / "user")}
        command = [str(folder / "bin" / program), *map(str, words)]
        ended = subprocess.run(command, cwd=folder, env=names | home, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def package_files() -> set[str]:
    paths = (path for path in (ROOT / "biorag").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.slow
def test_wheel_and_sdist_have_every_file_of_the_package(sdist, wheel):
    files = package_files()
    assert files >= {
        "biorag/answering/guards/data/words.toml",
        "biorag/corpus/demo/benchmark.json",
        "biorag/corpus/demo/snippets.jsonl",
        "biorag/prompts/open.txt",
        "biorag/lab/recipes/papers/bica.toml",
    }
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("biorag/")} == files
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= files | {"README.md", "LICENSE", "constraints.txt", "pyproject.toml"}
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]


@pytest.mark.slow
def test_the_installed_program_runs_from_the_wheel_alone(installed, tmp_path):
    assert installed("biorag", "--version") == f"biorag {PROJECT['version']}\n"
    assert str(ROOT) not in installed("python", "-c", "import biorag; print(biorag.__file__)")
    sampled = json.loads(installed("biorag", "data", "sample", "demo", "--sizes", 5, "--out", tmp_path / "x", "--json"))
    assert sampled["samples"] == [5]
    settings = json.loads(installed("biorag", "info", "--settings", "--json"))
    assert settings["graph"] == "default"


# --- the container ------------------------------------------------------------------------------------------


def instructions(name: str) -> list[str]:
    """Return the arguments of every instruction of a kind; lines that end in a backslash are joined."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)


def test_the_image_is_pinned_runs_without_root_and_copies_no_more_than_the_package():
    assert all(re.match(r"python:\d+\.\d+\.\d+-slim-\w+( AS \w+)?$", base) for base in instructions("FROM"))
    assert instructions("USER")[-1] == "10001:10001"
    assert instructions("VOLUME") == ["/data"]
    assert "BIORAG_HOME=/data HOME=/data/user" in instructions("ENV")[-1]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored and allowed == {"LICENSE", "README.md", "biorag", "constraints.txt", "pyproject.toml"}
    assert not re.search(r"(?i)(key|token|password|secret)\s*=", DOCKERFILE)


@pytest.mark.parametrize(("compose", "name"), ALL_SERVICES, ids=[name for _, name in ALL_SERVICES])
def test_a_service_has_a_read_only_root_no_capabilities_and_no_secret(compose, name):
    service = compose["services"][name]
    assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in service, "the server is for the other container alone"
    keys = [value for key, value in service["environment"].items() if key.endswith("API_KEY")]
    assert len(keys) == 1 and keys[0].startswith("${QDRANT_API_KEY:?")
    volumes = [volume.partition(":")[0] for volume in service["volumes"]]
    assert [volume for volume in volumes if volume not in compose["volumes"] and not volume.startswith("$")] == []
