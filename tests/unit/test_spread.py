"""A send to several partitions, of which some are away while their number changes."""

from types import SimpleNamespace
from typing import Any

from reliq.errors import RedisUnavailable, ReliqError
from reliq.model.outgoing import NewMessage
from reliq.ops import Together
from reliq.protocol.durability import ANY
from reliq.protocol.home import Moved
from reliq.protocol.spread import Spread


class Partitions:
    """Two partitions; the second alone remains once the layout was read again."""

    queue = "q"

    def __init__(self):
        self.answers: dict[str, list[Any]] = {"q": [Moved("q", {"m"}, set())], "p": [RedisUnavailable("away"), ["m"]]}
        self.names = ["p", "q"]

    @property
    def layout(self):
        return SimpleNamespace(version=1, names=lambda queue: self.names, count=len(self.names))

    def open_ones(self):
        return list(self.names)

    def note_away(self, name):
        pass

    def has_others(self, tried):
        return not set(tried).issuperset(self.names)

    def read(self):
        self.names = ["p"]
        return
        yield

    def named(self, name):
        def send(messages, terms, route):
            answer = self.answers[name].pop(0)
            if isinstance(answer, ReliqError):
                raise answer
            return answer
            yield

        return SimpleNamespace(keys=None, send=send)


def outcome(steps):
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    except ReliqError as error:
        return error


def driven(steps):
    """Run the steps of a send to their end; return what they return."""
    answer = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        assert not isinstance(request, Together) or request.steps, "the message is offered to no partition"
        answer = [outcome(one) for one in request.steps] if isinstance(request, Together) else None


def test_a_partition_that_was_away_is_tried_again_where_no_other_is_left():
    partitions: Any = Partitions()
    assert driven(Spread(partitions, [NewMessage("body", id="m")], ANY, None).send()) == ["m"]
