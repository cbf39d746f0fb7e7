"""One writer or many readers, between processes and within one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from biorag.errors import ServiceError
from biorag.utils import locks
from biorag.utils.locks import DirectoryLock

HOLD = """
import sys
from pathlib import Path
from biorag.utils.locks import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]), exclusive=sys.argv[2] == "exclusive")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pubmed"


@pytest.fixture
def holder(folder):
    """Starts a process that holds the lock until its standard input ends or it is killed."""
    started = []

    def start(kind: str) -> subprocess.Popen:
        command = [sys.executable, "-c", HOLD, str(folder), kind]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_writer_shuts_out_writers_and_readers_and_is_named(folder):
    lock = DirectoryLock(folder, exclusive=True)
    expected = rf"^index 'pubmed' is being written by process {os.getpid()} on {re.escape(socket.gethostname())} since "
    for exclusive in (True, False):
        with pytest.raises(ServiceError, match=expected) as caught:
            DirectoryLock(folder, exclusive)
        assert caught.value.exit_code == 6
        assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ: wait for that to end", str(caught.value))
    assert json.loads((folder / "lock").read_text())["pid"] == os.getpid()  # being refused has not disturbed it
    lock.release()


def test_readers_share_and_shut_out_a_writer_until_the_last_is_gone(folder):
    readers = [DirectoryLock(folder, exclusive=False) for _ in range(3)]
    for reader in readers:
        with pytest.raises(ServiceError, match=r"index 'pubmed' is being read by another biorag process \(stop a "):
            DirectoryLock(folder, exclusive=True)
        reader.release()
    DirectoryLock(folder, exclusive=True).release()


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_the_lock_is_free_once_its_process_is_killed(folder, holder, kind):
    process = holder(kind)
    says = f"written by process {process.pid} " if kind == "exclusive" else "read by another biorag process"
    with pytest.raises(ServiceError, match=says):
        DirectoryLock(folder, exclusive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate("")
    lock = DirectoryLock(folder, exclusive=True)
    with pytest.raises(ServiceError, match=f"written by process {os.getpid()} "):
        DirectoryLock(folder, exclusive=False)
    lock.release()


@pytest.mark.parametrize("text", ["{", "null", "\xff\xfe"])
def test_a_lock_file_with_anything_in_it_still_gives_our_error(folder, text):
    lock = DirectoryLock(folder, exclusive=True)
    (folder / "lock").write_bytes(text.encode("latin-1"))
    with pytest.raises(ServiceError, match="index 'pubmed' is being written by another biorag process"):
        DirectoryLock(folder, exclusive=False)
    lock.release()


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_lock_whose_file_is_removed_between_opening_and_locking_is_taken_on_the_next_one(
    folder, exclusive, monkeypatch
):
    """The writer before removes its lock file as it ends; a lock on that file would keep nobody out."""
    take, tried = locks.try_lock, []

    def removing(handle: int, kind: int) -> bool:
        tried.append(os.fstat(handle).st_ino)
        if len(tried) == 1:
            (folder / "lock").unlink()
        return take(handle, kind)

    with monkeypatch.context() as patched:
        patched.setattr(locks, "try_lock", removing)
        lock = DirectoryLock(folder, exclusive)
    assert len(tried) == 2
    with pytest.raises(ServiceError):
        DirectoryLock(folder, exclusive=True)
    lock.release()
    DirectoryLock(folder, exclusive=True).release()
