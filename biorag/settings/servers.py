"""Checks of a server's URL, which manifests, reports and messages show."""

from __future__ import annotations

from biorag.utils.network import host_of, is_server


def check_url(value: str | None) -> str | None:
    """Refuse what is not a URL, or what `check_plain` refuses."""
    if value is not None and not is_server(value):
        raise ValueError("give a URL such as http://localhost:6333")
    return check_plain(value)


def check_plain(value: str | None) -> str | None:
    """Refuse a URL with more than a scheme, a host, a port and a path."""
    if value is not None and is_server(value):
        if "@" in value:
            raise ValueError("write / in a password as %2F, ? as %3F and # as %23, and @ in a path as %40")
        if not host_of(value):
            raise ValueError("its host or port cannot be read: write e.g. http://localhost:8080")
        if "?" in value or "#" in value:
            raise ValueError(
                "leave out everything after the path; keys belong in QDRANT_API_KEY, BIORAG_LLM_API_KEY or NCBI_API_KEY"
            )
    return value
