"""The options of a message are declared once, and every call that enqueues refuses the names it does not have."""

import asyncio
import inspect
from operator import attrgetter

import pytest

import reliq
from reliq import BatchOptions, MessageOptions, NewMessage, PublishOptions, aio
from reliq.contract.options import BY_NAME

NOWHERE = "redis://localhost:1"
CALLS = {
    "send": lambda app, **options: app.queue("q").send(b"x", **options),
    "send, a NewMessage": lambda app, **options: app.queue("q").send(NewMessage(b"x"), **options),
    "send_many": lambda app, **options: app.queue("q").send_many([b"x"], **options),
    "prepare": lambda app, **options: app.queue("q").prepare(b"x", **options),
    "publish": lambda app, **options: app.publish("a.b", b"x", **options),
}
REFUSED = [
    *((call, "dedupkey") for call in CALLS),
    ("send", "mandatory"),
    ("send", "timeout"),
    ("send_many", "id"),
    ("send_many", "dedup_key"),
    ("send_many", "window"),
    ("publish", "dedup_key"),
    ("publish", "window"),
]

DEDUPLICATION = {"dedup_key", "window", "replace", "debounce", "at_most"}


@pytest.fixture(params=["sync", "asyncio"])
def ask(request):
    """A function that makes a call with options, of either face; no Redis is there."""
    if request.param == "sync":
        return lambda call, **options: CALLS[call](reliq.Reliq(NOWHERE), **options)

    async def awaited(call, options):
        return await CALLS[call](aio.Reliq(NOWHERE), **options)

    return lambda call, **options: asyncio.run(awaited(call, options))


@pytest.mark.parametrize(("call", "name"), REFUSED)
def test_an_option_that_the_call_does_not_have_is_refused_before_anything_is_sent(ask, call, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'.*delay, headers"):
        ask(call, **{name: "x"})


@pytest.mark.parametrize("call", ["send", "send_many", "prepare", "publish"])
def test_an_option_that_is_wrong_is_refused_as_a_message_refuses_it(ask, call):
    with pytest.raises(reliq.InvalidMessage, match="priority is 'urgent'"):
        ask(call, priority="urgent")


def test_the_keywords_of_a_call_are_the_options_that_do_not_leave_it_out():
    assert list(MessageOptions.__optional_keys__ ^ set(BY_NAME)) == []
    assert MessageOptions.__optional_keys__ - PublishOptions.__optional_keys__ == DEDUPLICATION
    assert MessageOptions.__optional_keys__ - BatchOptions.__optional_keys__ == {"id", *DEDUPLICATION}


@pytest.mark.parametrize("option", BY_NAME)
def test_an_option_is_an_attribute_of_the_message(option):
    assert hasattr(NewMessage(b"x"), option)


@pytest.mark.parametrize("name", ["Queue.send", "Queue.send_many", "Queue.prepare", "Reliq.publish"])
def test_a_call_names_the_declaration_of_its_options(name):
    method = attrgetter(name)(reliq)
    (options,) = [one for one in inspect.signature(method).parameters.values() if one.kind is one.VAR_KEYWORD]

    assert options.annotation.__args__[0].__name__ in method.__doc__ or "those of `send`" in method.__doc__
