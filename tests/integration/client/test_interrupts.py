"""Ctrl-C at any moment of a call: the connection is of use afterwards, and each caller reads its own reply."""

import dis
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from reliq import ops
from reliq.ops import command
from reliq.transport.connection import Connection
from reliq.transport.store import Store

#: Behind these, the interpreter runs the handlers of signals.
_LOOKS = frozenset({"CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"})


class Interrupts:
    """Raises KeyboardInterrupt at the nth place of the transport's code at which a signal may be handled."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.came = False
        self._before: dict[FrameType, str] = {}

    @contextmanager
    def under_way(self) -> Iterator[None]:
        former = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        except KeyboardInterrupt:
            assert self.came
        finally:
            sys.settrace(former)
            self._before.clear()

    def _enter(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if "reliq/transport/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode" and not self.came:
            before, self._before[frame] = self._before.get(frame), _names(frame.f_code)[frame.f_lasti]
            self._left -= before in _LOOKS
            if self._left <= 0:
                self.came = True
                raise KeyboardInterrupt
        return self._step


@functools.cache
def _names(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


def interrupted(interrupts: Interrupts, store: Store, connection: Connection) -> None:
    with interrupts.under_way():
        store.run(ops.one(command("GET", "a")), connection)


def test_an_interrupt_at_any_moment_of_a_call_leaves_no_reply_to_the_next_one(url: str) -> None:
    places, came = 0, True
    while came:
        places += 1
        store = Store(url)
        connection = store.connection("mine")
        store.call([command("SET", "a", "1"), command("SET", "b", "2")], connection)
        interrupts = Interrupts(places)
        # In a thread: the error of a tracer may stay the current one of its thread, with CPython 3.11, for ever.
        thread = threading.Thread(target=interrupted, args=(interrupts, store, connection))
        thread.start()
        thread.join()
        came, began = interrupts.came, time.monotonic()
        answers = [store.call(command("GET", key), connection, timeout=0) for key in "bab"]
        assert answers == [b"2", b"1", b"2"]
        assert time.monotonic() - began < 2, "it waited for a reply to what it has not sent"
        connection.close()
        store.close()
    assert places > 20


def test_a_connection_whose_end_is_interrupted_is_made_anew_with_its_name(url: str) -> None:
    store = Store(url)
    connection = store.connection("mine")
    store.call(command("PING"), connection)
    raw = connection._raw

    def interrupted() -> None:
        del raw.disconnect
        raw.disconnect()
        raise KeyboardInterrupt

    raw.disconnect = interrupted
    with pytest.raises(KeyboardInterrupt):
        connection.close()
    assert store.call(command("CLIENT", "GETNAME"), connection) == b"mine"
    assert connection.connects == 2
    connection.close()
    store.close()
