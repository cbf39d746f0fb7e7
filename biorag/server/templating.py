"""Templates, whose every value is escaped and shown as a terminal would be shown it: without control characters."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from biorag.utils.text import showable


def _shown(value: Any) -> Any:
    return showable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


TEMPLATES = Environment(
    loader=PackageLoader("biorag.server"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)


def rendered(template: str, **values: Any) -> str:
    """Return a template filled in."""
    return TEMPLATES.get_template(template).render(**values)


def page(template: str, /, status: int = 200, **values: Any) -> Response:
    """Return a template filled in, as a response."""
    return HTMLResponse(rendered(template, **values), status)
