import asyncio

import pytest

import reliq
from reliq import aio
from tests.support.sync_adapter import Blocking


@pytest.fixture(params=["sync", "asyncio"])
def face(request, url):
    """A function that makes an application of either face."""
    if request.param == "sync":
        made = []

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


@pytest.fixture
def queue(face):
    return face().queue("q")
