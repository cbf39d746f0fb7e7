"""Write docs/settings.md from the fields of the settings.

python -m scripts.settings_page
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from biorag.settings.settings import FIELDS, SECTIONS, SettingField

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """# Settings

    biorag search "inhaled steroids" --k 10         # an option
    BIORAG_K=10 biorag search "inhaled steroids"    # a variable: BIORAG_ and the name
    echo 'k = 10' >> ~/.local/share/biorag/biorag.toml   # the configuration file

Options take precedence over variables, variables over [the configuration file](operating.md#settings). `biorag info
--settings` shows the values that hold. `python -m scripts.settings_page` writes this page.
"""
TITLES = {
    None: "General",
    "services": "Servers",
    "index": "Index",
    "retrieval": "Retrieval",
    "generation": "Generation",
    "abstention": "Withholding an answer",
    "training": "Training",
}


def page() -> str:
    """Return the page: a table for each section."""
    lines = [HEAD]
    for section, title in TITLES.items():
        lines += [f"## {title}", "", "| setting | default | option | meaning |", "|---|---|---|---|"]
        lines += [_row(name, entry) for name, entry in FIELDS.items() if entry.section == section]
        lines.append("")
    assert set(TITLES) == {None, *SECTIONS}
    return "\n".join(lines).rstrip() + "\n"


def _row(name: str, entry: SettingField) -> str:
    option = f"`{entry.flag}`" if entry.flag else ""
    meaning = " ".join(str(entry.field.description).split()).replace("|", r"\|")
    return f"| `{name}` | {_default(entry.field.default)} | {option} | {meaning} |"


def _default(default: Any) -> str:
    if default is None or not isinstance(default, str | int | float):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
