"""The bodies of requests, typed and bounded: the same from the API and from the page's forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import Request

from biorag.api.session import options_of
from biorag.errors import UsageError
from biorag.utils.parsing import advice_of

LONGEST_QUESTION = 4000  # characters, of which encoders read some hundreds of words
FIELDS = 64  # of a form
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_QUESTION)]
Earlier = Annotated[str, StringConstraints(max_length=LONGEST_QUESTION)]
Option = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
IndexName = Annotated[str, Field(max_length=300, description="Index, one of /v1/models; empty for the default.")]
Condition = Annotated[str, StringConstraints(max_length=1000)]
Conditions = Annotated[
    list[Condition] | Condition, Field(max_length=1000, description="Conditions, as --filter takes them.")
]
# Fields of the page's form that are conditions, as filters write them.
CONDITIONS = {
    **{"filter": "{}", "since": "year>={}", "until": "year<={}", "type": 'type="{}"'},
    **{"journal": 'journal~"{}"', "author": 'authors~"{}"', "humans": "mesh=Humans"},
}
LABELS = {"k": "number of sources"}  # of the form's other fields
B = TypeVar("B", bound=BaseModel)


class _Body(BaseModel):
    """A body whose other fields than `index` are arguments of a session's method; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
    index: IndexName = ""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the session's method."""
        return {name: value for name, value in self if name != "index"}


class RankedBody(_Body):
    """How snippets are found; by default as the server was started."""

    filter: Conditions = []
    k: int | None = Field(default=None, ge=1, le=200, description="Hits.")
    k_init: int | None = Field(default=None, ge=1, le=2000, description="Candidates of the first stage.")
    mode: str | None = Field(default=None, max_length=16, description="bm25, dense or hybrid.")
    rerank: bool | None = Field(default=None, description="Whether candidates are reranked.")


class SearchBody(RankedBody):
    """A search."""

    query: Text


class AskBody(RankedBody):
    """A question."""

    question: Text
    options: dict[Annotated[str, StringConstraints(max_length=1)], Option] = Field(
        default={}, max_length=26, description="Texts of a multiple-choice question by their letters."
    )
    include_retracted: bool | None = Field(default=None, description="Whether retracted articles are evidence.")
    answer_anyway: bool | None = Field(default=None, description="Whether to answer where the index is unlikely to.")
    after: Earlier = Field(default="", description="The last question as it was searched, which this one may follow.")
    said: Earlier = Field(default="", description="The answer to that one.")


class VerifyBody(_Body):
    """A claim to judge, by one snippet or by a search for it."""

    claim: Text
    snippet: Name | None = Field(default=None, description="Id or PMID of the snippet to judge by.")
    filter: Conditions = []


class WeighBody(RankedBody):
    """A claim whose studies, for and against, are shown."""

    claim: Text
    k: int | None = Field(default=None, ge=1, le=200, description="Studies to judge; by default 50.")


async def form_fields(request: Request) -> dict[str, str]:
    """Return the filled fields of a form, sent in the address or the body, the last of each name."""
    is_sent = request.method == "POST"
    fields = await request.form(max_files=0, max_fields=FIELDS) if is_sent else request.query_params
    return {name: text for name, value in fields.items() if isinstance(value, str) and (text := value.strip())}


def ask_body(fields: Mapping[str, str]) -> AskBody:
    """Return the question of a form, whose options are lines `A=text`; raise `UsageError` as `validated` does."""
    values: dict[str, Any] = {
        name: fields[name] for name in ("question", "k", "mode", "after", "said") if name in fields
    }
    values["filter"] = _conditions(fields)
    values["options"] = options_of(filter(None, map(str.strip, fields.get("options", "").splitlines())))
    values |= {name: True for name in ("include_retracted", "answer_anyway") if name in fields}
    return validated(AskBody, values)


def weigh_body(fields: Mapping[str, str]) -> WeighBody:
    """Return the claim of a form; raise `UsageError` as `validated` does."""
    return validated(WeighBody, {"claim": fields.get("claim", ""), "filter": _conditions(fields)})


def _conditions(fields: Mapping[str, str]) -> list[str]:
    texts = {name: value if name == "filter" else value.replace('"', " ") for name, value in fields.items()}
    return [form.format(texts[name]) for name, form in CONDITIONS.items() if name in texts]


def validated(kind: type[B], values: Mapping[str, Any]) -> B:
    """Return a body of these values; raise `UsageError` naming the first field that is wrong."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(map(str, fault["loc"]))
        raise UsageError(f"{LABELS.get(field, field)}: {advice_of(fault)}") from None
