"""Versions of the packages that results depend on."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "biorag",
    "qdrant-edge-py",
    "qdrant-client",
    "sentence-transformers",
    "transformers",
    "torch",
    "llama-cpp-python",
)


def installed_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of packages, by default those that determine results; what is not installed is left out."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
