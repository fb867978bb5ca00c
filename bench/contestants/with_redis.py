"""Redis by hand. Variants:

raw        reliq's own scripts in reliq's batches, with nothing around them: no decoding, no handler, no lease kept
streams    a consumer group, COUNT 100, acked and deleted in one pipeline
pipelined  LMOVE and LREM, 100 of them in a pipeline
lmove      LMOVE and LREM, one at a time
"""

import time

import redis
from play import BODY, play

BATCH = 256  #: as many as a reliq worker with a quick handler claims
HAND_BATCH = 100


def fill(url, messages, variant):
    client = redis.Redis.from_url(url)
    if variant == "raw":
        from with_reliq import fill as fill_reliq

        fill_reliq(url, messages)
    for start in range(0, 0 if variant == "raw" else messages, 1000):
        bodies = [BODY] * min(1000, messages - start)
        if variant == "streams":
            pipeline = client.pipeline(transaction=False)
            for body in bodies:
                pipeline.xadd("stream", {"body": body})
            pipeline.execute()
        else:
            # Elements that differ, as every real queue's do: equal ones would make LREM find its match at once.
            client.lpush("ready", *(f"{start + place:08}{body}" for place, body in enumerate(bodies)))


def raw(url, count):
    from reliq import ops
    from reliq.model.keys import QueueKeys, new_owner
    from reliq.transport.resp import pack
    from reliq.transport.store import Store

    keys, consumer = QueueKeys("bench"), new_owner()
    store = Store(url)
    store.call([ops.register(keys, consumer, 15.0), ops.claim(keys, consumer, 15.0, 1)])
    first = store.call(ops.read_back(keys, consumer))
    store.call(ops.settle(keys, consumer, 15.0, first, (), 0))  # loads the script
    connection = store.new_connection()
    connection.connect()
    for _ in first:
        count()
    elements = []
    while True:
        command = ops.settle(keys, consumer, 15.0, elements, (), BATCH, row=len(elements)).command
        connection.send_packed_command(pack([command]))
        elements = connection.read_response()[3:]
        if not elements:
            time.sleep(0.002)
        else:
            count.many(len(elements))


def streams(url, count):
    client = redis.Redis.from_url(url)
    client.xgroup_create("stream", "group", id="0", mkstream=True)
    done = []
    while True:
        pipeline = client.pipeline(transaction=False)
        if done:
            pipeline.xack("stream", "group", *done)
            pipeline.xdel("stream", *done)
        pipeline.xreadgroup("group", "me", {"stream": ">"}, count=HAND_BATCH)
        answer = pipeline.execute()[-1]
        done = []
        for _, entries in answer or ():
            for identity, fields in entries:
                _ = fields[b"body"]
                count()
                done.append(identity)


def pipelined(url, count):
    client = redis.Redis.from_url(url)
    done = []
    while True:
        pipeline = client.pipeline(transaction=False)
        for element in done:
            pipeline.lrem("processing", -1, element)
        for _ in range(HAND_BATCH):
            pipeline.lmove("ready", "processing", "RIGHT", "LEFT")
        done = [element for element in pipeline.execute()[-HAND_BATCH:] if element is not None]
        for _ in done:
            count()


def lmove(url, count):
    client = redis.Redis.from_url(url)
    while True:
        element = client.blmove("ready", "processing", 1, "RIGHT", "LEFT")
        if element is not None:
            count()
            client.lrem("processing", -1, element)


def consume(url, count, variant):
    {"raw": raw, "streams": streams, "pipelined": pipelined, "lmove": lmove}[variant](url, count)


if __name__ == "__main__":
    play(fill, consume, ("redis", "hiredis"), f"batches of {BATCH} (raw), {HAND_BATCH} (by hand)")
