"""Durable handlers beside the reference model: the same random story, and the same places and counters at the end."""

import random
from contextlib import ExitStack

import pytest

import reliq
from reliq.model.keys import QueueKeys
from reliq.model.policy import RunOver
from tests.reference import model
from tests.support.turns import Monitor

COUNTERS = ("enqueued", "claimed", "acked", "released", "slept", "parked", "signalled", "cancelled", "purged")
PLACES = ("ready", "processing", "delayed", "parked")


def places_of(expected: model.Queue) -> dict[str, int]:
    found = {name: len(expected.all(name)) for name in PLACES}
    return {**found, "ready": len(expected.all(model.READY, model.WAITING))}


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"limit_key": "k"}], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_the_same_story_has_the_same_end(app, client, seed, options):
    chance, expected = random.Random(seed), model.System().queue("q")
    queue, monitor = app.queue("q"), Monitor(app.store)
    held: dict[str, reliq.Message] = {}
    slept: dict[str, int] = {}
    passed: set[str] = set()
    with ExitStack() as stack:
        consumer = stack.enter_context(queue.consumer())
        for _ in range(120):
            act = chance.choice(["send", "claim", "claim", "ack", "wait", "wait", "sleep", "signal", "wake", "cancel"])
            one = chance.choice([*held]) if held else ""
            known = [*expected.messages]
            if act == "send":
                identity = queue.send("x", **options)
                expected.send(model.Message(identity, options=options))
            elif act == "claim":
                for message in consumer.claim(1):
                    held[message.id] = message
                    expected.claim(message.id, "w")
            elif act == "ack" and one:
                consumer.ack(held.pop(one))
                expected.settle(one, "ack")
            elif act == "wait" and one:
                signal = chance.choice("ab")
                if expected.wait(one, signal):
                    assert held[one].wait(signal) == expected.messages[one].signals[signal]
                else:
                    with pytest.raises(RunOver):
                        held.pop(one).wait(signal)
            elif act == "sleep" and one:
                if one not in passed:  # its handler begins: it passes the sleeps that are over
                    passed.add(one)
                    for number in range(slept.get(one, 0)):
                        held[one].sleep(f"s{number}", "1h")
                slept[one] = slept.get(one, 0) + 1
                expected.settle(one, "sleep", delay=3600)
                with pytest.raises(RunOver):
                    held.pop(one).sleep(f"s{slept[one] - 1}", "1h")
                passed.discard(one)
            elif act == "signal" and known:
                identity, name, value = chance.choice(known), chance.choice("ab"), chance.randrange(100)
                try:
                    taken = queue.signal(identity, name, value)
                except reliq.SignalRefused:
                    taken = False
                if expected.messages[identity].place != model.GONE:
                    assert taken == expected.signal(identity, name, value)
                elif taken:  # of a message that had no signals nothing is remembered: it is kept, and then forgotten
                    expected.counters["signalled"] += 1
                    expected.messages[identity].signals[name] = value
            elif act == "wake":
                due = [one.id for one in expected.all(model.DELAYED)]
                if due:
                    queue.delayed.run(*due)
                    monitor.promote()
                    for message in sorted(expected.all(model.DELAYED), key=lambda one: one.due):
                        expected._return(message)
            elif act == "cancel" and known:
                identity = chance.choice(known)
                if expected.messages[identity].place not in (model.PROCESSING, model.GONE):
                    queue.cancel(identity)
                    expected.cancel(identity)
            stats = queue.stats()
            assert {name: getattr(stats, name) for name in PLACES} == places_of(expected), act
            assert stats.missing == 0
            assert {one.id for one in queue.parked()} == {one.id for one in expected.all(model.PARKED)}
        for name in COUNTERS:
            assert stats.counters.get(name, 0) == expected.counters[name], name
        for message in held.values():
            consumer.ack(message)
    queue.purge()
    fields = client.hgetall(QueueKeys("q").followed)
    assert int(client.hget(QueueKeys("q").config, "recorded") or 0) == sum(
        1 for one in fields if one.count(b"\n") == 1 and one != b"\n"
    )
