"""Papers as recipes: steps, each a command of biorag, and the tables that they fill."""

from pathlib import Path

PAPERS = Path(__file__).parent / "papers"
SUFFIX = ".toml"


def papers() -> list[str]:
    """Return the names of the packaged recipes."""
    return sorted(path.stem for path in PAPERS.glob(f"*{SUFFIX}"))
