"""Work begun in a thread: its result, its error, and errors that come before."""

import threading

import pytest

from biorag.utils.background import in_background


def test_the_result_can_be_asked_for_more_than_once():
    begun = threading.Event()
    with in_background(lambda: begun.set() or "done") as result:
        assert begun.wait(60), "work begins before it is asked for"
        assert (result(), result()) == ("done", "done")


def test_an_error_comes_where_the_result_is_wanted():
    with in_background(lambda: 1 / 0) as result, pytest.raises(ZeroDivisionError):
        result()


def test_an_error_that_nobody_waits_for_is_not_raised():
    with pytest.raises(ValueError, match="the index"), in_background(lambda: 1 / 0):
        raise ValueError("the index")


def test_the_work_has_ended_at_the_end():
    go, ended = threading.Event(), []
    with in_background(lambda: go.wait(60) and ended.append(True)):
        go.set()
    assert ended == [True]
