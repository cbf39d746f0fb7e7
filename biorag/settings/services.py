"""Servers, and how they are reached."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from pydantic import SecretStr, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from biorag.settings.section import ONCE, BoundSecret, Effect, Section, check_url, option, setting
from biorag.utils.network import Server, addresses, host_of, leaves_for, origin_of, proxy_of, without_credentials
from biorag.utils.secrets import remember

logger = logging.getLogger(__name__)

CROSSREF = "https://api.crossref.org"
EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
SENT = {  # what goes to a server of each kind, and what names it
    "qdrant": "questions and snippets go to %s (the index's server)",
    "llm": "questions and evidence go to %s (--llm)",
    "reader": "claims and evidence go to %s (--reader)",
    "eutils": "PubMed ids and queries go to %s (--eutils)",
    "crossref": "titles and DOIs of papers go to %s (--enrich crossref)",
}
LOGIN = "user:password of a proxy before it, as in its URL."
_service = partial(setting, effect=Effect.NONE)


class ServiceSettings(Section):
    """Servers of indexes, generators and citations: URLs, keys, time-outs."""

    qdrant: str | None = option(
        None,
        "URL of a Qdrant server that holds the index, or of several nodes with commas between (key: QDRANT_API_KEY). "
        "Default: embedded.",
        effect=Effect.NAMES,
    )
    qdrant_api_key: SecretStr | None = _service(
        None, "Key of the Qdrant server; also QDRANT_API_KEY.", variable="QDRANT_API_KEY"
    )
    qdrant_login: SecretStr | None = _service(None, LOGIN)
    eutils: str = option(EUTILS, "URL of NCBI's E-utilities (key: NCBI_API_KEY).", effect=Effect.NONE)
    eutils_api_key: SecretStr | None = _service(
        None, "Key for ten requests a second instead of three; also NCBI_API_KEY.", variable="NCBI_API_KEY"
    )
    eutils_login: SecretStr | None = _service(None, LOGIN)
    crossref: str = option(CROSSREF, "URL of Crossref's REST API.", effect=Effect.NONE)
    llm_api_key: SecretStr | None = _service(None, "Key of the generator's server.")
    llm_login: SecretStr | None = _service(None, LOGIN)
    reader_api_key: SecretStr | None = _service(None, "Key of the reader's server.")
    reader_login: SecretStr | None = _service(None, LOGIN)
    optimizing_timeout: float = _service(
        3600.0,
        "Seconds that a Qdrant server may build its graph without progress, after a bulk load.",
        gt=0,
        le=604_800,
    )
    timeout: float = _service(120.0, "Time-out of one reply, in seconds.", gt=0, le=604_800)
    retries: int = _service(5, "Retries of a failed request.", bounds=(0, 100))
    offline: bool = _service(False, "Connect only to hosts named on the command line.")

    _urls = field_validator("qdrant", "eutils", "crossref")(check_url)

    @field_validator("qdrant")
    @classmethod
    def _in_one_spelling(cls, value: str | None) -> str | None:
        return ",".join(address.rstrip("/") for address in addresses(value)) if value else value

    @field_validator(
        *("qdrant_api_key", "eutils_api_key", "llm_api_key", "reader_api_key"),
        *("qdrant_login", "eutils_login", "llm_login", "reader_login"),
        mode="wrap",
    )
    @classmethod
    def _fits_a_header(
        cls, value: Any, validated: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> SecretStr | None:
        secret: SecretStr | None = validated(value)
        text = secret.get_secret_value() if secret else ""
        is_login = str(info.field_name).endswith("_login")
        if not text.isprintable() or not (text.isascii() or is_login):
            raise ValueError("it has characters that cannot be sent: does it end in a line break?")
        remember(text)
        return value if isinstance(value, BoundSecret) else secret

    def server(self, url: str, kind: str, at_a_time: int = 1) -> Server:
        """Return how the server at `url` is reached, with a key and login set for it; say which data are sent there."""
        announce(url, kind)
        host = origin_of(url)
        key, login = self._secret(f"{kind}_api_key", host), self._secret(f"{kind}_login", host)
        return Server(url, self.timeout, self.retries, key, login, at_a_time)

    def _secret(self, name: str, host: str) -> str | None:
        """Return a key or login unless it was set for another server; warn then."""
        secret: SecretStr | None = getattr(self, name, None)
        if isinstance(secret, BoundSecret) and secret.server != host:
            logger.warning(
                "%s was set for %s and is not sent to %s: set it beside that server's URL",
                *(name, secret.server, host),
                extra=ONCE,
            )
            return None
        return secret.get_secret_value() if secret else None


def announce(url: str, kind: str) -> None:
    """Say that data leave this machine, and where they go; once in a command."""
    for address in addresses(url):
        if leaves_for(address):
            proxy = without_credentials(proxy_of(address))
            logger.info(SENT[kind], host_of(address) + (f" through the proxy {proxy}" if proxy else ""), extra=ONCE)
