"""Versions of the packages that results depend on, and missing packages of an extra."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version

from biorag.errors import MissingError

PACKAGES = (
    *("biorag", "qdrant-edge-py", "qdrant-client", "sentence-transformers", "transformers", "torch"),
    "llama-cpp-python",
)


def installed_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of those packages that are installed, by default of those that determine results."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def lacking(extra: str) -> list[str]:
    """Return the packages that an extra of biorag names and that are not installed."""
    from packaging.requirements import Requirement  # which importing the command line must not

    requirements = [Requirement(text) for text in requires("biorag") or ()]
    of_extra = [wanted.name for wanted in requirements if wanted.marker and wanted.marker.evaluate({"extra": extra})]
    return [package for package in of_extra if not installed_versions([package])]


def require(extra: str) -> None:
    """Raise `MissingError` naming the first package of an extra that is not installed, and how to install it."""
    if missing := lacking(extra):
        raise MissingError(f"this needs the package {missing[0]!r}: run pip install 'biorag[{extra}]'")
