"""Template files: two sections, `[system]` and `[user]`, with named fields in braces."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MissingError
from biorag.prompts.fence import defused
from biorag.types import Prompt, Question, Snippet

FIELDS = ("documents", "question", "options", "letters")
MOST_CITATIONS = 8  # so that what follows the free text fits the tokens kept for it
BUILT_IN = ("choice", "closed_book", "score", "closed_book_score", "open")
_SECTIONS = re.compile(r"\A\[system\]\n(?P<system>.*?)\n\[user\]\n(?P<user>.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    """The two turns of a chat prompt with fields to fill."""

    system: str
    user: str

    @property
    def sha256(self) -> str:
        """Hash of both turns, hex."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()

    def render(self, question: Question, snippets: Sequence[Snippet], controls: Sequence[str] = ()) -> Prompt:
        """Fill the fields; snippets are numbered from 1 and fenced as `<document>` elements; see `render_documents`."""
        values = {
            "documents": render_documents(snippets, controls),
            "question": question.text,
            "options": "\n".join(f"{letter}. {text}" for letter, text in question.options.items()),
            "letters": ", ".join(question.options),
        }
        return self.fill(**values)

    def bound(self, field: str, value: str) -> Template:
        """Return the template with one field filled; the others stay."""
        filled = value.replace("{", "{{").replace("}", "}}")
        return Template(*(turn.replace(f"{{{field}}}", filled) for turn in (self.system, self.user)))

    def fill(self, **values: str | int) -> Prompt:
        """Fill the fields with values as they stand."""
        return Prompt(self.system.format(**values), self.user.format(**values))


def load_template(
    name: str, file: Path | None = None, needed: str = "question", known: Sequence[str] = FIELDS
) -> Template:
    """Return a built-in template by name, or the one in `file`.

    Raises `MissingError` if the file is not there; `BadInputError` if it lacks a section, or the field `needed` in the
    user's turn, or has a field not among those `known`.
    """
    if file is None:
        text = (resources.files("biorag.prompts") / f"{name}.txt").read_text(encoding="utf-8")
        return parse_template(text, name, needed, known)
    if not file.is_file():
        raise MissingError(f"prompt template {file} is not there")
    try:
        return parse_template(file.read_text(encoding="utf-8"), str(file), needed, known)
    except UnicodeDecodeError:
        raise BadInputError(f"prompt template {file} is not UTF-8") from None


def templates_hash(file: Path | None = None) -> str:
    """Return the SHA-256 of the built-in templates, or of the one in `file`."""
    templates = [load_template(name, file) for name in BUILT_IN]
    return hashlib.sha256("\0".join(part for t in templates for part in (t.system, t.user)).encode()).hexdigest()


def parse_template(text: str, source: str, needed: str = "question", known: Sequence[str] = FIELDS) -> Template:
    """Return the template of a file's text; raises as `load_template` does."""
    match = _SECTIONS.match(text.replace("\r\n", "\n").lstrip("\ufeff\n"))
    if not match:
        raise BadInputError(f"prompt template {source} must start with a line [system] and have a line [user]")
    template = Template(match["system"].strip(), match["user"].strip())
    _check_fields(template.system, source, known)
    if needed not in _check_fields(template.user, source, known):
        raise BadInputError(f"prompt template {source} has no {{{needed}}} in its [user] section")
    return template


def _check_fields(text: str, source: str, known: Sequence[str]) -> set[str]:
    """Return the names of a text's fields; a field is a bare name, without format or conversion."""
    names: set[str] = set()
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is not None:
                names.add(name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else ""))
    except ValueError as error:
        raise BadInputError(f"prompt template {source}: {error}; write {{{{ and }}}} for braces") from None
    if unknown := sorted(names - set(known)):
        fields = ", ".join(f"{{{name}}}" for name in known)
        raise BadInputError(f"prompt template {source} has the unknown field {{{unknown[0]}}}: the fields are {fields}")
    return names


def render_documents(snippets: Sequence[Snippet], controls: Sequence[str] = ()) -> str:
    """Return the snippets as numbered, fenced documents; imitations of the fence or of a chat turn are defused.

    `controls` are the control strings of the model, beside those known; see `Generator`.
    """
    if not snippets:
        return "(none)"
    documents = []
    for number, snippet in enumerate(snippets, 1):
        title = f"{defused(snippet.title, tuple(controls))}\n" if snippet.title else ""
        text = defused(snippet.content, tuple(controls))
        documents.append(f'<document n="{number}">\n{title}{text}\n</document>')
    return "\n".join(documents)


def schema_for(question: Question, documents: int) -> Mapping[str, object]:
    """Return the JSON schema of the reply: for this question's letters, for this many documents.

    Free text comes first and the decision last, so that a reply can be closed validly at any point of it.
    """
    if question.options:
        relevant = {"relevant_context": {"enum": ["YES", "NOT"]}} if documents else {}
        choice = {"answer_choice": {"enum": list(question.options)}}
        return object_schema({"step_by_step_thinking": {"type": "string"}, **relevant, **choice})
    numbers = {
        "type": "array",
        "items": {"enum": list(range(1, documents + 1))},
        "maxItems": min(documents, MOST_CITATIONS),
        "minItems": 1,
    }
    return object_schema({"answer": {"type": "string"}, **({"citations": numbers} if documents else {})})


def object_schema(properties: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the JSON schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
