"""Versions of the packages that results depend on."""

from __future__ import annotations

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


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that determine results."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
