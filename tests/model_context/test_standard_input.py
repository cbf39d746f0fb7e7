"""Standard input that a signal ends: what is read, and that nothing is left waiting."""

from __future__ import annotations

import subprocess
import sys

START = """
import os, signal, sys
from biorag.model_context.standard_input import ended_by_signals
"""


def run(code: str, **options) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", START + code], **pipes)


def test_what_is_sent_is_read_whole_and_the_end_too():
    sent = bytes(range(256)) * 4_000
    with run(
        """
with ended_by_signals():
    read = b""
    while chunk := os.read(0, 1000):
        read += chunk
sys.stdout.buffer.write(read)
"""
    ) as process:
        stdout, stderr = process.communicate(sent, timeout=200)
    assert (process.returncode, stderr) == (0, b"")
    assert stdout == sent


def test_a_signal_ends_it_and_is_handled_afterwards():
    with run(
        """
with ended_by_signals():
    os.write(1, os.read(0, 10))
    os.kill(os.getpid(), signal.SIGINT)
    os.write(1, b"|" + os.read(0, 10))
    os.write(1, b"done")
"""
    ) as process:
        process.stdin.write(b"first")
        process.stdin.flush()
        assert process.wait(200) == -2, "the input is still open"
        assert process.stdout.read() == b"first|done"
        assert b"KeyboardInterrupt" in process.stderr.read()


def test_input_that_nobody_reads_does_not_hold_up_the_end():
    with run(
        """
kept = []
with ended_by_signals():
    kept.append(os.dup(0))  # as the SDK keeps one
    print("open", flush=True)
print("end", flush=True)
"""
    ) as process:
        stdout, _ = process.communicate(b"x" * 1_000_000, timeout=200)
    assert (process.returncode, stdout) == (0, b"open\nend\n")
