"""What the hooks of a send leave is checked again: a message that cannot be read is refused where it is sent."""

import pytest

import reliq


class Changes(reliq.Middleware[reliq.Sending]):
    """Changes the last message of each send."""

    def __init__(self, name, value):
        self.name, self.value = name, value
        self.errors = []

    def before(self, subject):
        setattr(subject.messages[-1], self.name, self.value)

    def on_error(self, subject, error):
        self.errors.append(type(error))


UNREADABLE = {
    "a header that is a number": ("headers", {"tries": 1}, "valid Unicode; the value of 'tries' is of type int"),
    "a header with a lone surrogate": ("headers", {"a": "\ud800"}, "valid Unicode; one has half of a surrogate pair"),
    "a header without a name": ("headers", {"": "x"}, "a header has an empty name"),
    "headers too large": ("headers", {"a": "x" * 70_000}, "the headers take 70001 bytes"),
    "no headers": ("headers", None, "headers must map texts to texts"),
    "a text as body": ("body", "text", "its body is of type str: a hook must set it to bytes"),
    "a dict as body": ("body", {"order": 1}, "its body is of type dict: a hook must set it to bytes"),
    "a body too large": ("body", b"x" * 3000, "the body has 3,000 bytes, the limit is 2,000"),
    "an id with a space": ("id", "a b", "message id 'a b'"),
    "a key that is a number": ("key", 7, "key is 7"),
    "an unknown priority": ("priority", "urgent", "priority is 'urgent'"),
    "a delay that is no time": ("delay", "soon", "delay is 'soon'"),
    "a cost that is true": ("cost", True, "cost is True"),
    "a delay that is false": ("delay", False, "delay is False"),
    "a ttl that is over": ("ttl", -1, "ttl is -1"),
}
all_of_them = pytest.mark.parametrize(("name", "value", "text"), UNREADABLE.values(), ids=UNREADABLE)


@all_of_them
def test_a_send_raises_and_nothing_is_sent(face, name, value, text):
    app = face(max_body=2000)
    hook = Changes(name, value)
    app.middleware(sends=hook)
    queue = app.queue("q")
    with pytest.raises(reliq.InvalidMessage, match=text) as one:
        queue.send("x")
    with pytest.raises(reliq.InvalidMessage, match="message 2 of the call, as its middleware has left it") as many:
        queue.send_many(["x"] * 3)
    assert (one.value.index, many.value.index) == (None, 2)
    assert hook.errors == [reliq.InvalidMessage] * 2
    assert queue.stats().ready == 0


def send_in_batch(app):
    with app.batch() as batch:
        batch.send("q", "x")


WAYS = {
    "publish": lambda app: app.publish("orders.new", "x"),
    "prepare": lambda app: app.queue("q").prepare("x"),
    "batch": send_in_batch,
    "key": lambda app: app.queue("q").send("x", key="k"),
    "latest": lambda app: app.queue("q").send("x", dedup_key="k", replace=True),
}


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
def test_every_way_to_send_checks_again(face, send):
    app = face()
    app.subscribe("q", "orders.*")
    app.middleware(sends=Changes("headers", {"tries": 1}))
    with pytest.raises(reliq.InvalidMessage, match="headers must map texts to texts"):
        send(app)
    stats = app.queue("q").stats()
    assert (stats.ready, stats.prepared) == (0, 0)


def test_what_hooks_may_change_is_sent_as_they_leave_it(face):
    app = face()
    app.middleware(sends=Changes("headers", {"tenant": "a"}))
    app.middleware(sends=Changes("body", b"y"))
    app.middleware(sends=Changes("delay", "90s"))
    app.queue("q").send("x")
    (message,) = app.queue("q").delayed.list()
    assert (message.headers, message.body) == ({"tenant": "a"}, b"y")


def test_a_hook_cannot_add_what_is_no_message(face):
    class Adds(reliq.Middleware[reliq.Sending]):
        def before(self, subject):
            subject.messages.append("x")

    app = face()
    app.middleware(sends=Adds())
    with pytest.raises(reliq.InvalidMessage, match=r"it is of type str: the messages of a send are reliq\.NewMessage"):
        app.queue("q").send("x")
