"""The application of the worker processes of a story: what its handler does, and has done, is in database 1."""

import os
from typing import Any

import redis

import reliq
from reliq.model.backoff import fixed
from tests.combine.workers import RETRIES, do, ended, outcome_of, rest

app = reliq.Reliq()
_notes: Any = redis.Redis(port=int(os.environ["STORY_PORT"]), db=1, decode_responses=True)


@app.handler("q", retry=fixed(0, limit=RETRIES), result="1h")
def perform(message: reliq.Message) -> Any:
    first, wanted = os.environ["STORY_FIRST"], os.environ["STORY_OUTCOME"]
    runs = _notes.hincrby("runs", message.id, 1)
    outcome = outcome_of(message, message.id == first, wanted, runs > 1)
    _notes.rpush("ran", f"{message.id} {outcome}")
    opened = do(app, message, os.environ["STORY_DEED"]) if message.id == first else None
    if isinstance(opened, tuple):
        _notes.hset("opened", opened[0], " ".join(opened[1]))
    if message.id == first:
        rest(message, wanted)
    return ended(outcome)
