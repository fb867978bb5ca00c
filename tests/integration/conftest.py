import asyncio
from typing import Any

import pytest
import redis

import reliq
from reliq import aio
from tests.support.handlers import KINDS
from tests.support.sync_adapter import Blocking


@pytest.fixture(params=["sync", "asyncio"])
def face(request, url):
    """A function that makes an application of either face."""
    if request.param == "sync":
        made: list[Any] = []

        def make(*arguments, **options):
            made.append(reliq.Reliq(*(arguments or (url,)), **options))
            return made[-1]

        yield make
        for app in made:
            app.close()
        return
    with asyncio.Runner() as runner:
        made = []

        def make_blocking(*arguments, **options):
            made.append(Blocking(aio.Reliq(*(arguments or (url,)), **options), runner))
            return made[-1]

        yield make_blocking
        for app in made:
            app.close()


@pytest.fixture(params=KINDS)
def kind(request):
    """The way in which a worker runs the handlers of a test."""
    return request.param


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def queue(face):
    return face().queue("q")
