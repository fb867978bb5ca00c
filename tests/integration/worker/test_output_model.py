"""Output beside the reference model: the same random story, and the same chunks after each step."""

import random
from contextlib import ExitStack

import pytest

import reliq
from reliq.model.keys import QueueKeys
from tests.reference import model
from tests.support.turns import Monitor


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_the_same_story_leaves_the_same_output(app, client, seed, options):
    chance, expected = random.Random(seed), model.System().queue("q")
    queue, monitor, keys = app.queue("q"), Monitor(app.store), QueueKeys("q")
    held: dict[str, reliq.Message] = {}
    sent: dict[str, model.Message] = {}
    gone: set[str] = set()
    with ExitStack() as stack:
        consumer = stack.enter_context(queue.consumer())
        acts = [
            "send",
            "claim",
            "claim",
            *["emit"] * 4,
            "ack",
            "release",
            "dead",
            "redrive",
            "discard",
            "cancel",
            "purge",
        ]
        for number in range(150):
            act = chance.choice(acts)
            one = chance.choice([*held]) if held else ""
            dead = [message.id for message in expected.all(model.DEAD)]
            if act == "send":
                identity = queue.send("x", **options)
                sent[identity] = model.Message(identity, options=options)
                expected.send(sent[identity])
            elif act == "claim":
                for message in consumer.claim(1):
                    held[message.id] = message
                    expected.claim(message.id, "w")
            elif act == "emit" and one:
                held[one].emit(number)
                expected.emit(one, number)
            elif act == "ack" and one:
                consumer.ack(held.pop(one))
                expected.settle(one, "ack")
            elif act == "release" and one:
                consumer.release(held.pop(one))
                expected.settle(one, "release")
            elif act == "dead" and one:
                consumer.dead(held.pop(one), "rejected")
                expected.settle(one, "rejected")
            elif act == "redrive" and dead:
                queue.dead.redrive(ids=dead[:1])
                expected.redrive(dead[0])
            elif act == "discard" and dead:
                queue.dead.purge(all=True)
                expected.discard(*dead)
                gone.update(dead)
            elif act == "cancel":
                waiting = [message.id for message in expected.all(model.READY, model.WAITING)]
                if waiting:
                    identity = chance.choice(waiting)
                    queue.cancel(identity)
                    expected.cancel(identity)
                    gone.add(identity)
            elif act == "purge" and chance.random() < 0.2:
                gone.update(message.id for message in expected.all(model.READY, model.WAITING))
                queue.purge()
                expected.purge()
            monitor.clean_outputs()
            # What is wrong stays wrong: all outputs are read after every fifth act.
            for identity, message in sent.items() if number % 5 == 4 else ():
                there = [chunk.value for chunk in queue.output(identity, follow=False)]
                assert there == ([] if identity in gone else message.output), (number, act)
            open_ = [one for one in sent.values() if one.output and one.place != model.GONE]
            assert int(client.hget(keys.config, "emitted") or 0) == len(open_), act
        for message in held.values():
            consumer.ack(message)
    queue.purge()
    queue.dead.purge(all=True)
    monitor.clean_outputs()
    assert not client.exists(keys.followed)
