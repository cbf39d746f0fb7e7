"""Papers that people send into an index, by a job that shows how far it is; manuscripts that they have checked."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any, cast

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from biorag.corpus.rejects import REJECTS, RejectsFile
from biorag.corpus.sources import BEIR_CORPUS, BEIR_QUERIES
from biorag.errors import BadInputError, BioragError, MismatchError, MissingError, ServiceError, UsageError
from biorag.faces.server.asking import WorkQueue, answered
from biorag.faces.server.faults import RefusedError, status_of
from biorag.faces.server.options import ServeOptions
from biorag.faces.server.pages import Handler, LastKept, page
from biorag.faces.session_pool import SessionPool
from biorag.indexes.records import read_ledger
from biorag.indexes.store import Store
from biorag.indexing import index_corpus
from biorag.registries import PARTS, READERS
from biorag.settings.settings import Settings
from biorag.types import OnProgress
from biorag.utils.files import replacing, require_room, scratch_folder, sha256_of
from biorag.utils.http import GivenUpError
from biorag.utils.outputs import is_own
from biorag.utils.progress import silent
from biorag.utils.text import showable

logger = logging.getLogger(__name__)

FILES = 200  # of a request: each may be an open file of this process
LONGEST_NAME = 180  # bytes
BATCH = 32  # snippets, after which progress is seen and the end of the server is heeded
ENDINGS = tuple(suffix for kind in READERS.values() for suffix in kind.suffixes)
GONE = "this is no longer known: send the files again"


@dataclass(slots=True)
class Received:
    """What became of a file that was sent: its path and snippets, and why it could not be read."""

    name: str
    path: Path | None = None
    fault: str = ""
    snippets: int = 0


@dataclass(slots=True)
class Job:
    """Files that go into an index; `done` of `total` steps of a stage, None if unknown."""

    index: str
    files: list[Received] = field(default_factory=list)
    stage: str = "Waiting for its turn"
    done: int = 0
    total: int | None = None
    fault: str = ""
    has_ended: bool = False


class Uploads:
    """The pages for papers and manuscripts; papers go into the indexes of a pool."""

    def __init__(self, pool: SessionPool, options: ServeOptions, judging: WorkQueue) -> None:
        self._pool, self._options, self._judging = pool, options, judging
        self._indexing = WorkQueue(1, options.queue)
        self._jobs: LastKept[Job] = LastKept(GONE)
        self._checked: LastKept[tuple[str, dict[str, bytes]]] = LastKept(GONE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._receiving, self._saving, self._stopped = asyncio.Lock(), Lock(), Event()
        self.routes: list[tuple[str, Handler, str]] = [
            ("/papers", partial(self._form, "papers.html"), "GET"),
            ("/papers", self.add, "POST"),
            ("/papers/{name}", self.job, "GET"),
            ("/check", partial(self._form, "check.html"), "GET"),
            ("/check", self.check, "POST"),
            ("/check/{name}", self.report, "GET"),
            ("/check/{name}/{file}", self.report, "GET"),
        ]

    def close(self) -> None:
        """Let work under way end where it next can; an index that is being made resumes when it is sent more."""
        self._stopped.set()

    async def add(self, request: Request) -> Response:
        """Keep the papers of a form and begin to index them."""
        async with self._sent(request) as form:
            settings = self._settings(str(form.get("index") or self._pool.first.name))
            job = Job(settings.index.name)
            job.files = await asyncio.to_thread(self._kept, settings, _files(form, "files"))
        task = asyncio.create_task(self._indexed(settings, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return RedirectResponse(f"/papers/{self._jobs.keep(job)}", HTTPStatus.SEE_OTHER)

    async def job(self, request: Request) -> Response:
        """Show how far a job is, or what it led to; as a part, with the status at which htmx looks no more."""
        job, address = self._jobs.get(request.path_params["name"]), request.url.path
        can_be_asked = job.has_ended and job.index in await asyncio.to_thread(self._pool.names)
        if request.headers.get("hx-request") == "true":
            status = 286 if job.has_ended else HTTPStatus.OK
            return page("job_state.html", status, job=job, can_be_asked=can_be_asked)
        return self._page("job.html", job=job, address=address, can_be_asked=can_be_asked)

    async def check(self, request: Request) -> Response:
        """Check a manuscript with its references, none of which is kept, and lead to its report."""
        with scratch_folder() as folder:
            async with self._sent(request) as form:
                index = str(form.get("index") or "")
                sent = [*_files(form, "manuscript")[:1], *_files(form, "references")]
                paths = await asyncio.to_thread(_copied, folder, sent)
            try:
                checked = await answered(request, self._judging, lambda _: self._check(index, paths))
            except BioragError as error:
                raise RefusedError(status_of(error), error.public.replace(f"{paths[0].parent}/", "")) from None
        return RedirectResponse(f"/check/{self._checked.keep(checked)}", HTTPStatus.SEE_OTHER)

    async def report(self, request: Request) -> Response:
        """Show the report on a manuscript, or return a file of it."""
        content, files = self._checked.get(request.path_params["name"])
        name = request.path_params.get("file")
        if name is None:
            return self._page("checked.html", content=content, names=list(files), address=request.url.path)
        if name not in files:
            raise MissingError("there is no such report: check the manuscript again")
        headers = {"Content-Disposition": "attachment"}
        return Response(files[name], media_type="application/octet-stream", headers=headers)

    async def _form(self, template: str, request: Request) -> Response:
        index, names = request.query_params.get("index", ""), await asyncio.to_thread(self._pool.names)
        if template == "check.html" or not self._options.others:  # papers go where their owner says
            index = index or self._pool.first.name
        return self._page(template, index=index, names=names, endings=ENDINGS, options=self._options, files=FILES)

    def _page(self, template: str, **shown: Any) -> Response:
        return page(template, asks=bool(self._options.token), uploads=True, **shown)

    @asynccontextmanager
    async def _sent(self, request: Request) -> AsyncIterator[FormData]:
        """Take in the files of a form, one form at a time."""
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise UsageError("the form cannot be read: send it again from the page")
        try:
            async with self._receiving, request.form(max_files=FILES) as form:
                yield form
        except OSError as error:
            raise ServiceError(f"the files cannot be taken in ({error.strerror}): make room, and try again") from None

    def _settings(self, name: str) -> Settings:
        """Return the settings of the index that papers are for."""
        first = self._pool.first
        if name != first.name and not self._options.others:
            raise UsageError(f"this page has index {first.name!r} alone: send the papers there")
        return first.settings.replace(name=name, batch_size=BATCH)

    def _kept(self, settings: Settings, sent: Sequence[UploadFile]) -> list[Received]:
        """Write files into the folder of an index, those that fail noted."""
        if not sent:
            raise UsageError("no file was sent: choose some")
        folder = settings.uploads / settings.index.name
        held = (Path(name) for name in read_ledger(Store(settings).folder).files)
        taken = {path.name for path in held if path.parent != folder.resolve()} | {*BEIR_CORPUS, *BEIR_QUERIES}
        files = [Received(file_name(one.filename or "")) for one in sent]
        with self._saving:
            for file, one in zip(files, sent, strict=True):
                try:
                    file.path = keep(folder, file.name, one, taken)
                    file.name = file.path.name
                except (BioragError, OSError) as error:
                    file.fault = str(error)
        return files

    async def _indexed(self, settings: Settings, job: Job) -> None:
        try:
            if any(file.path for file in job.files):
                await self._indexing.run(lambda: self._index(settings, job))
        except BioragError as error:
            job.fault = error.public.replace(f"{settings.uploads / job.index}/", "")
        except Exception:
            logger.exception("indexing into %s failed", job.index)
            job.fault = "the server failed at this: its log says why"
        job.has_ended = True

    def _index(self, settings: Settings, job: Job) -> None:
        """Bring an index up to date with its folder, and note what each file gave."""
        store, folder = Store(settings), settings.uploads / job.index
        rejects = RejectsFile(store.folder / REJECTS, is_checked=False, lenient=True)
        progress, alone = partial(self._progress, job), partial(self._pool.written, job.index)
        try:
            index_corpus(settings, [str(folder)], rejects, progress, confirm=_refuse, alone=alone)
        finally:
            held = read_ledger(store.folder).files
            for file in job.files:
                if file.path:
                    of_file = held.get(str(file.path.resolve()))
                    file.snippets = len(of_file.documents) if of_file else 0
                    file.fault = rejects.first.get(str(file.path), "").replace(f"{folder}/", "")

    def _check(self, index: str, paths: Sequence[Path]) -> tuple[str, dict[str, bytes]]:
        check = PARTS["checked manuscript"].load()
        with self._pool.lend(index) as session:
            return cast(tuple[str, dict[str, bytes]], check(session, paths[0], paths[1:], silent))

    @contextmanager
    def _progress(self, job: Job, description: str, total: int | None) -> Iterator[OnProgress]:
        job.stage, job.done, job.total = description, 0, total

        def advance(steps: int) -> None:
            if self._stopped.is_set():
                raise GivenUpError("the server was ended")
            job.done += steps

        yield advance


def _refuse(question: str) -> None:
    raise MismatchError(f"files are gone from the folder of uploads, which asks first: {question}")


def _files(form: FormData, name: str) -> list[UploadFile]:
    files = [one for one in form.getlist(name) if isinstance(one, UploadFile) and one.filename]
    if not files and name == "manuscript":
        raise UsageError("no manuscript was sent: choose one")
    return files


def _copied(folder: Path, sent: Sequence[UploadFile]) -> list[Path]:
    """Copy a manuscript and its references, each into a folder of its own, so that none is found beside another."""
    paths = [folder / f"{number}" / file_name(one.filename or "") for number, one in enumerate(sent)]
    for path, file in zip(paths, sent, strict=True):
        path.parent.mkdir()
        with path.open("wb") as copy:
            shutil.copyfileobj(file.file, copy)
    return paths


def file_name(sent: str) -> str:
    """Return the name under which a file is kept, of the name that a browser sent: no path, nothing hidden."""
    name = sent.replace("\\", "/").rpartition("/")[2].strip().lstrip(".")
    name = showable(name.translate({9: 0, 10: 0}))  # texts may have tabs and line feeds, ids may not
    stem, dot, suffix = name.rpartition(".")
    room = LONGEST_NAME - len(suffix.encode()) - 1
    return stem.encode()[: max(room, 0)].decode("utf-8", "ignore") + dot + suffix if dot else name


def keep(folder: Path, name: str, file: UploadFile, taken: set[str]) -> Path:
    """Write a file into a folder, with a number where its name is taken; return the path.

    Of a file that is there already, whatever its name, the path is returned; one of another format is another file.

    Raises `BadInputError` if its format is not read, `ServiceError` if the disk has no room for it.
    """
    ending = max((one for one in ENDINGS if name.lower().endswith(one)), key=len, default="")
    if not ending or name.lower() == ending:
        raise BadInputError("its format is not read")
    folder.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.file_digest(cast(Any, file.file), "sha256").hexdigest()
    stem, suffix = name[: -len(ending)], name[-len(ending) :]
    for path in sorted(folder.iterdir()):
        if path.name.lower().endswith(ending) and path.stat().st_size == file.size and sha256_of(path) == sha256:
            return path
    names = (f"{stem} ({number}){suffix}" if number > 1 else name for number in count(1))
    path = next(folder / one for one in names if one not in taken and not (folder / one).exists())
    require_room(folder, file.size or 0)
    file.file.seek(0)
    with replacing(path) as stream:
        shutil.copyfileobj(file.file, stream)
    if is_own(path, folder):
        path.unlink()
        raise BadInputError("biorag wrote it, and it is no paper")
    return path
