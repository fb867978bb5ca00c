"""What a message costs Redis in memory: queued, processing, and nothing after its ack."""

import os

import reliq
from bench.suite.harness import Check, Row, Setting, fresh_redis
from reliq import ops
from reliq.model.keys import QueueKeys, new_owner

BODY = b"x" * 200
_HELD = 100  #: messages a consumer holds


def row(setting: Setting) -> Row:
    messages = max(_HELD, setting.volume(100_000) // _HELD * _HELD)
    with fresh_redis() as (server, client):
        app, keys = reliq.Reliq(server.url), QueueKeys("bench")

        def used() -> int:
            return int(client.info("memory")["used_memory"])

        def used_by(key: str) -> int:
            used = client.memory_usage(key, samples=0)
            assert used is not None, f"{key} is not in Redis"
            return used

        app.queue("bench").send("warm")
        app.queue("bench").purge()
        client.script_flush()  # the scripts' own memory is not the messages'
        empty = used()
        app.queue("bench").send_many([BODY] * messages)
        queued = used_by(keys.messages) / messages
        queued_used = (used() - empty) / messages
        consumers = [new_owner(connected=False) for _ in range(messages // _HELD)]
        held = {one: _claim(app, keys, one) for one in consumers}
        processing = sum(used_by(keys.processing(one)) for one in consumers) / messages
        processing_used = (used() - empty) / messages
        for one, elements in held.items():
            app.store.call([ops.settle(keys, one, 600.0, elements), ops.forget(keys, one, leaving=True)])
        left = client.llen(keys.messages) + sum(client.llen(keys.processing(one)) for one in consumers)
        lasting = {os.fsdecode(key) for key in client.keys("*") if client.ttl(key) < 0}  # not the answer of the purge
        keys_left = lasting - set(keys.everything) - {"reliq:queues"}
        remaining = used() - empty
        app.close()
    result = Row("memory in Redis per 200-byte message")
    result.checks = [
        Check("bytes queued", [max(queued, queued_used)], 300, at_least=False),
        Check("processing / queued", [processing / queued], 1.3, at_least=False),
        Check("messages and keys left after ack", [float(left + len(keys_left))], 0, at_least=False),
    ]
    result.notes = [
        f"queued: {queued:.0f} by MEMORY USAGE, {queued_used:.0f} by used_memory, of {messages:,} messages",
        f"processing, {_HELD} a consumer: {processing:.0f} by MEMORY USAGE, {processing_used:.0f} by used_memory",
        f"used_memory after all acks: {remaining:+,} bytes (counters, buffers, scripts)",
    ]
    return result


def _claim(app: reliq.Reliq, keys: QueueKeys, consumer: str) -> list[bytes]:
    _, claimed = app.store.call([ops.register(keys, consumer, 600.0), ops.claim(keys, consumer, 600.0, _HELD)])
    elements: list[bytes] = claimed.elements
    return elements
