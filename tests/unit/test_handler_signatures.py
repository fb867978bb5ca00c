"""A function that cannot take a message is refused when it is registered, not when the first message comes."""

import functools

import pytest

import reliq
from reliq import aio
from reliq.errors import InvalidHandler
from reliq.model.signatures import is_async


def no_argument():
    """Not a handler."""


def order(order, customer):
    """Two arguments, as if a message were unpacked."""


def keyword(message, *, shop):
    """One argument that is never given."""


def named(*, message):
    """The message is given by position."""


class Shop:
    def ship(self, message):
        """Unbound, it takes two arguments."""


async def no_argument_async():
    """Not a handler either."""


REFUSED = [no_argument, order, keyword, named, Shop.ship, no_argument_async]


def ways(app):
    return {
        "handler": app.handler("q"),
        "broadcast": app.broadcast("config.#"),
        "check": app.check("q"),
        "on_dead": app.on_dead("q"),
    }


@pytest.fixture(params=[reliq.Reliq, aio.Reliq], ids=["sync", "asyncio"])
def app(request):
    return request.param("redis://localhost:1/0")


@pytest.mark.parametrize("way", ["handler", "broadcast", "check", "on_dead"])
@pytest.mark.parametrize("function", REFUSED)
def test_a_function_that_cannot_take_a_message_is_refused(app, way, function):
    with pytest.raises(InvalidHandler, match="the message"):
        ways(app)[way](function)


def test_the_sentence_shows_the_signature(app):
    with pytest.raises(InvalidHandler) as caught:
        app.handler("orders")(order)
    assert str(caught.value) == (
        "the handler of queue 'orders' is order(order, customer), which cannot be called with the message: "
        "missing a required argument: 'customer'; it must take the message, or a body and the message, each "
        "annotated with its type"
    )


@pytest.mark.parametrize(
    "function",
    [
        print, [].append, repr, lambda message: None, lambda *messages: None, lambda message, shop="eu": None,
        functools.partial(order, customer=1), Shop().ship,
    ],
)  # fmt: skip
def test_what_can_take_a_message_is_accepted(app, function):
    app.handler("q")(function)


@pytest.mark.parametrize("way", ["handler", "broadcast", "check", "on_dead"])
def test_a_generator_is_refused_because_a_call_runs_none_of_it(app, way):
    def work(message):
        yield message

    async def work_async(message):
        yield message

    class Work:
        def __call__(self, message):
            yield message

    for function in (work, work_async, Work(), staticmethod(work), functools.partial(Work())):
        with pytest.raises(InvalidHandler, match="a generator"):
            ways(app)[way](function)


class AsyncWork:
    async def __call__(self, message):
        """Awaited."""


@pytest.mark.parametrize(
    "function", [AsyncWork(), functools.partial(AsyncWork()), staticmethod(no_argument_async), AsyncWork().__call__]
)
def test_what_must_be_awaited_is_known_behind_a_partial_and_a_static_method(function):
    assert is_async(function)


def test_an_async_on_dead_is_refused_because_it_is_never_awaited(app):
    async def died(message):
        """Never awaited."""

    with pytest.raises(InvalidHandler, match="an async function"):
        app.on_dead("q")(died)


@pytest.mark.parametrize("backoff", [lambda failures: 5, lambda: 5, lambda a, b, c: 5, "5s"])
def test_a_back_off_that_cannot_take_a_failure_is_refused(app, backoff):
    with pytest.raises(InvalidHandler, match="retry of queue 'q'"):
        app.handler("q", retry=backoff)(print)
