"""A stand-in for NCBI's elink on a loopback port, with faults."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from biorag.citation_graph.eutils import LINK, ELink
from biorag.utils.network import Server

CITED = {n: list(range(n + 100, n + 100 + n % 4)) for n in range(1, 500)}  # some cite nothing


class Entrez:
    """Answers elink by `CITED`, after the faults that are queued; keeps the forms."""

    def __init__(self) -> None:
        self.faults: list[tuple[int, bytes, dict[str, str]]] = []
        self.forms: list[dict[str, list[str]]] = []
        self.left_out: set[int] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/entrez/eutils"

    @property
    def asked(self) -> list[list[int]]:
        return [[int(id) for id in form["id"]] for form in self.forms]

    def link(self, key: str | None = None, retries: int = 4) -> ELink:
        return ELink(Server(self.url, 5.0, retries, key))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, pmids: list[int]) -> bytes:
        sets = []
        for pmid in pmids:
            if pmid not in self.left_out:
                links = [{"dbto": "pubmed", "linkname": LINK, "links": [str(other) for other in CITED[pmid]]}]
                others = [{"dbto": "pubmed", "linkname": "pubmed_pubmed_citedin", "links": ["9999"]}]
                found = {"linksetdbs": others + links} if CITED[pmid] else {}
                sets.append({"dbfrom": "pubmed", "ids": [str(pmid)], **found})
        return json.dumps({"header": {"type": "elink", "version": "0.3"}, "linksets": sets}).encode()

    def _handler(entrez):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                assert self.path == "/entrez/eutils/elink.fcgi"
                entrez.forms.append(form)
                status, body, headers = 200, entrez.answer([int(id) for id in form["id"]]), {}
                if entrez.faults:
                    status, body, headers = entrez.faults.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
