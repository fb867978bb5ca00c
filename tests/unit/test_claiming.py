"""From which partitions a consumer claims while a node of a cluster is away."""

from typing import Any

import pytest

from reliq.errors import RedisUnavailable
from reliq.model.keys import QueueKeys
from reliq.protocol.claiming import Failing, ready_counts

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
