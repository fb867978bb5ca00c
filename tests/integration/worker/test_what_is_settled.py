"""What is settled is the message that was received, whatever its handler has done to the object."""

import pytest

import reliq
from reliq.testing import work_off
from tests.support.handlers import bind, settled, working_as
from tests.support.workers import eventually

CHANGES = {
    "a number": lambda headers: headers.update(tries=1),
    "a lone surrogate": lambda headers: headers.update({"\ud800": "\udfff"}),
    "no text at all": lambda headers: headers.update({7: object()}),
    "nothing left": lambda headers: headers.clear(),
}
ENDS = {
    "fails": (KeyError("no"), "delayed"),
    "is refused": (reliq.Dead("no"), "dead"),
}
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
ends = pytest.mark.parametrize(("error", "place"), ENDS.values(), ids=ENDS)


@pytest.mark.parametrize("size", [1, 5000])
@changes
@ends
def test_headers_that_a_handler_has_changed_are_its_own(app, kind, change, error, place, size):
    def handle(message):
        if message.body != b"fine":
            change(message.headers)
            raise error

    bind(app, kind, handle, retry=reliq.fixed("1h"))
    queue = app.queue("q")
    queue.send("x" * size, id="one", headers={"tenant": "a"})
    with working_as(kind, app):
        eventually(lambda: getattr(queue.stats(), place) == 1)
        queue.send("fine")
        eventually(lambda: queue.stats().counters.get("acked") == 1)
    (message,) = queue.dead.list() if place == "dead" else queue.delayed.list()
    assert (message.id, message.headers, len(message.body)) == ("one", {"tenant": "a"}, size)
    assert message.errors[-1].text.endswith(("KeyError: 'no'\n", "no"))


@changes
def test_a_message_that_is_put_back_has_the_headers_with_which_it_was_sent(app, kind, change):
    seen = []

    def handle(message):
        seen.append(dict(message.headers))
        change(message.headers)
        return reliq.Again() if len(seen) == 1 else None

    bind(app, kind, handle)
    app.queue("q").send("x", headers={"tenant": "a"})
    with working_as(kind, app):
        eventually(lambda: len(seen) == 2 and settled(app))
    assert seen == [{"tenant": "a"}] * 2


@changes
def test_a_consumer_by_hand_settles_what_it_has_claimed(face, change):
    queue = face().queue("q")
    queue.send("x", id="one", headers={"tenant": "a"})
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        change(message.headers)
        consumer.dead(message, "no")
    (letter,) = queue.dead.list()
    assert (letter.id, letter.reason, letter.headers) == ("one", "rejected", {"tenant": "a"})


def test_a_before_hook_gives_the_handler_headers_that_are_not_kept(app, kind):
    class Adds(reliq.Middleware[reliq.Message]):
        def before(self, subject):
            subject.headers["user"] = "7"

    seen = []

    def handle(message):
        seen.append(dict(message.headers))
        raise reliq.Dead

    app.middleware(runs=Adds())
    bind(app, kind, handle)
    app.queue("q").send("x", headers={"tenant": "a"})
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().dead)
    (letter,) = app.queue("q").dead.list()
    assert (seen, letter.headers) == ([{"tenant": "a", "user": "7"}], {"tenant": "a"})


def test_work_off_settles_what_was_received_too(app):
    def handle(message):
        message.headers["tries"] = 1
        raise reliq.Dead("no")

    bind(app, "inline", handle)
    app.queue("q").send("x", id="one")
    work_off(app)
    (letter,) = app.queue("q").dead.list()
    assert (letter.id, letter.reason, letter.headers) == ("one", "rejected", {})
