"""What a process knows of queues is bounded, however many names it has seen."""

import gc
import weakref

import pytest

import reliq
from reliq import aio
from reliq.runtime import bounded


@pytest.fixture(autouse=True)
def three(monkeypatch):
    monkeypatch.setattr(bounded, "MOST", 3)


def test_a_further_name_takes_the_place_of_the_first():
    values: bounded.Bounded[str] = bounded.Bounded()
    for name in "abcd":
        values[name] = name.upper()
    values["b"] = "again"
    assert values == {"b": "again", "c": "C", "d": "D"}


@pytest.mark.parametrize("kind", [reliq.Reliq, aio.Reliq])
def test_an_application_keeps_no_queue_for_ever(kind):
    app = kind()
    first = weakref.ref(app.queue("reply.0"))
    assert app.queue("reply.0") is first()
    for number in range(1, 4):
        app.queue(f"reply.{number}")
    gc.collect()
    assert first() is None
    assert app.queue("reply.0").name == "reply.0"
