"""Files: written so that they are at any moment the old one or the new one, whole; and their hashes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, values: Any) -> None:
    """Write indented JSON atomically and durably."""
    write_text(path, json.dumps(values, ensure_ascii=False, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically and durably, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
