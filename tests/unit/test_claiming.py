"""From which partitions a consumer claims while a node of a cluster is away."""

from types import SimpleNamespace
from typing import Any

import pytest

from reliq.errors import RedisUnavailable
from reliq.model.keys import QueueKeys
from reliq.protocol.claiming import Failing, HomeLook, ReadyCounts, from_any, ready_counts

AWAY, ALIVE = ("away", 1), ("alive", 2)
PARTITIONS = [QueueKeys(name) for name in ("a", "b", "c")]
NODES = dict(zip((one.messages for one in PARTITIONS), (AWAY, ALIVE, AWAY), strict=True))


def test_a_node_that_has_just_failed_is_not_asked_again():
    failing = Failing()
    steps: Any = ready_counts(PARTITIONS, failing, NODES.get)
    assert len(next(steps)) == 3
    error = RedisUnavailable("no answer")
    error.node = "away:1"
    again = steps.throw(error)
    assert [len(next(one)) for one in again.steps] == [1]
    with pytest.raises(StopIteration) as done:
        steps.send([{"b": 5}])
    assert done.value.value == {"b": 5}
    assert [name for name in ("a", "b", "c") if name in failing] == ["a", "c"]


def read(steps: Any, counts: dict[str, int]) -> Any:
    """Run steps; answer each look at partitions by these counts. Return the result and how many were looked at."""
    looked = 0
    try:
        ops = next(steps)
        while True:
            looked += len(ops)
            ops = steps.send([counts[one.command[1].split("{")[1].split("}")[0]] for one in ops])
    except StopIteration as done:
        return done.value, looked


def test_partitions_with_many_messages_are_not_looked_at_before_each_claim():
    failing, found, counts = Failing(), ReadyCounts(), {"a": 5, "b": 0, "c": 3}

    def claim(keys: QueueKeys) -> Any:
        got = min(2, counts[keys.queue])
        counts[keys.queue] -= got
        return [keys.queue] * got
        yield

    looked, got = [], []
    for _ in range(6):
        some, number = read(from_any(PARTITIONS, failing, found, claim), dict(counts))
        looked.append(number)
        got += some
    assert sorted(got) == ["a"] * 5 + ["c"] * 3
    assert looked == [3, 0, 0, 0, 0, 3]  # the last one finds nothing, and says so only after a look


def test_a_look_is_trusted_for_a_short_while_and_less_what_was_claimed(monkeypatch):
    found, now = ReadyCounts(), [100.0]
    monkeypatch.setattr("reliq.protocol.claiming.time", SimpleNamespace(monotonic=lambda: now[0]))
    found.note({"a": 5, "b": 1})
    look = HomeLook(PARTITIONS, Failing(), found)
    look.recall(0, lambda name: name == "c")
    assert [one.queue for one in look.keys] == ["a", "b"]  # the third one was not there
    look.got(PARTITIONS[1], ["one"])
    with look.trying(PARTITIONS[0]):
        raise RedisUnavailable("no answer")
    look.recall(0, lambda _: False)
    assert look.keys == []
    found.note({"a": 5})
    now[0] += 0.3
    look.recall(0, lambda _: False)
    assert look.keys == []
