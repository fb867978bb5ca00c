"""A handler that tells what it runs, and then waits until it may end; for processes that are killed."""

import os
import time

import redis

import reliq

app = reliq.Reliq()
client = redis.Redis.from_url(os.environ["RELIQ_URL"])


@app.handler("q")
def handle(message: reliq.Message) -> None:
    client.rpush("started", message.body)
    while message.body == b"running" and not client.exists("go on"):
        time.sleep(0.01)
    client.rpush("ended", message.body)
