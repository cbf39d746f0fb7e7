"""Servers, and how they are reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from biorag.settings.section import Effect, Flag, Secret, Section, Variable
from biorag.settings.servers import check_url
from biorag.utils.network import Server

EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
LOGIN = "user:password of a proxy before it, as in its URL."


class ServiceSettings(Section):
    """Servers of indexes, generators and citations: URLs, keys, time-outs."""

    qdrant: Annotated[str | None, Flag("--qdrant"), Effect.NAMES] = Field(
        default=None,
        description="URL of a Qdrant server that holds the index (key: QDRANT_API_KEY); none: embedded.",
    )
    qdrant_api_key: Annotated[Secret, Variable("QDRANT_API_KEY"), Effect.NONE] = Field(
        default=None, description="Also QDRANT_API_KEY."
    )
    qdrant_login: Annotated[Secret, Effect.NONE] = Field(default=None, description=LOGIN)
    eutils: Annotated[str, Flag("--eutils"), Effect.NONE] = Field(
        default=EUTILS,
        description="URL of NCBI's E-utilities, used only by 'biorag graph fill' (key: NCBI_API_KEY).",
    )
    eutils_api_key: Annotated[Secret, Variable("NCBI_API_KEY"), Effect.NONE] = Field(
        default=None, description="NCBI_API_KEY works too: ten requests a second instead of three."
    )
    eutils_login: Annotated[Secret, Effect.NONE] = Field(default=None, description=LOGIN)
    llm_api_key: Annotated[Secret, Effect.NONE] = Field(default=None, description="Key of the generator's server.")
    llm_login: Annotated[Secret, Effect.NONE] = Field(default=None, description=LOGIN)
    timeout: Annotated[float, Effect.NONE] = Field(
        default=120.0, gt=0, le=604_800, description="Time-out of one reply, in seconds."
    )
    retries: Annotated[int, Effect.NONE] = Field(default=5, ge=0, le=100, description="Retries of a failed request.")
    offline: Annotated[bool, Effect.NONE] = Field(
        default=False, description="Connect only to hosts named on the command line."
    )

    _urls = field_validator("qdrant", "eutils")(check_url)

    @field_validator("qdrant_api_key", "eutils_api_key", "llm_api_key", "qdrant_login", "eutils_login", "llm_login")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        text = value.get_secret_value() if value else ""
        is_login = str(info.field_name).endswith("_login")
        if not text.isprintable() or not (text.isascii() or is_login):
            raise ValueError("it has characters that cannot be sent: does it end in a line break?")
        return value

    def server(self, url: str, kind: str, at_a_time: int = 1) -> Server:
        """Return how the server at `url` is reached, with the key and login of its kind."""
        key, login = getattr(self, f"{kind}_api_key"), getattr(self, f"{kind}_login")
        return Server(
            url,
            self.timeout,
            self.retries,
            key.get_secret_value() if key else None,
            login.get_secret_value() if login else None,
            at_a_time,
        )
