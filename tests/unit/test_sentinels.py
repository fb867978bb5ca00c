"""The threads that ask the sentinels end with what asked for them."""

import gc
import weakref
from contextlib import suppress

from reliq.ops.topology import Node
from reliq.transport.errors import ConnectionLost
from reliq.transport.sentinel import Sentinels
from tests.support.workers import eventually


class Refused:
    def __init__(self, node: Node) -> None: ...

    def connect(self) -> None:
        raise ConnectionRefusedError

    def disconnect(self) -> None: ...


def test_nothing_is_left_of_what_asked_before_a_close() -> None:
    sentinels = Sentinels([("127.0.0.1", 1)], "mymaster", Refused)
    with suppress(ConnectionLost):
        sentinels.master()
    panel = weakref.ref(sentinels._panel)
    sentinels.close()
    eventually(lambda: gc.collect() >= 0 and panel() is None, timeout=5)
    sentinels.close()
