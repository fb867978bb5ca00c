"""How often a send is tried again is the caller's to say, within the time it has."""

import asyncio

import pytest

import reliq
from reliq import aio
from reliq.errors import InvalidSetting, OutcomeUnknown
from tests.support.proxy import Proxy
from tests.support.sync_adapter import Blocking


class Deaf(Proxy):
    """Loses the answers to as many sends as `lose` says, and counts the sends."""

    def __init__(self, port: int) -> None:
        super().__init__(port, request=self._count, reply=self._cut)
        self.lose = self.tries = 0
        self._sending = False

    def _count(self, data: bytes) -> bytes:
        self._sending = b"EVALSHA" in data  # not the look at the server that comes with a new connection
        self.tries += self._sending
        return data

    def _cut(self, data: bytes) -> bytes | None:
        if self._sending and self.lose:
            self.lose -= 1
            return None
        return data


@pytest.fixture(params=["sync", "asyncio"])
def deaf(request, redis_server, url):
    """A proxy, and an application of either client behind it, connected and with loaded scripts."""
    with Deaf(redis_server.port) as proxy, asyncio.Runner() as runner:
        sync = request.param == "sync"
        app = (
            reliq.Reliq(proxy.url, send_timeout=60) if sync else Blocking(aio.Reliq(proxy.url, send_timeout=60), runner)
        )
        app.subscribe("q", "#")
        for body in ("first by enqueue", "then by push"):
            app.queue("q").send(body)
        app.publish("any.key", "second")
        app.queue("q").prepare("third").commit()
        app.queue("q").purge()
        proxy.tries = 0
        yield proxy, app
        app.close()


SENDS = {
    "send": lambda app, **options: app.queue("q").send("x", **options),
    "send_many": lambda app, **options: app.queue("q").send_many(["x"], **options),
    "publish": lambda app, **options: app.publish("any.key", "x", **options),
    "prepare": lambda app, **options: app.queue("q").prepare("x", **options).commit(),
}


@pytest.mark.parametrize("verb", SENDS)
def test_a_call_is_tried_again_as_often_as_it_says(deaf, verb, app):
    proxy, cut_off = deaf
    proxy.lose = 2
    SENDS[verb](cut_off, repeats=2)
    assert proxy.tries == (4 if verb == "prepare" else 3)  # the commit is one more
    assert app.queue("q").stats().ready == 1


@pytest.mark.parametrize("verb", SENDS)
@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_without_an_answer_is_repeated_no_more_often_than_it_says(deaf, verb, retries, app):
    proxy, cut_off = deaf
    proxy.lose = 10
    with pytest.raises(OutcomeUnknown) as error:
        SENDS[verb](cut_off, repeats=retries)
    assert proxy.tries == 1 + retries
    assert len(error.value.ids) == 1
    stats = app.queue("q").stats()
    assert stats.ready + stats.prepared == 1


def test_by_default_as_often_as_there_is_time(deaf, app):
    proxy, cut_off = deaf
    proxy.lose = 6
    cut_off.queue("q").send("x")
    assert proxy.tries == 7
    assert app.queue("q").stats().ready == 1


@pytest.mark.parametrize("retries", [-1, 0.5, "2", True])
def test_what_is_no_number_of_retries_is_refused(app, retries):
    for send in SENDS.values():
        with pytest.raises(InvalidSetting, match="repeats is"):
            send(app, repeats=retries)
    assert app.queue("q").stats().ready == 0
