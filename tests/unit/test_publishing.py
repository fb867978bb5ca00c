"""A publish whose queues answer differently: what the caller is told, and to which home it goes instead."""

import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.features.topics.ops import Published
from reliq.features.topics.steps import TopicSteps
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import Layout, layout_text
from reliq.ops import Introduction, Op, Sleep, Together, Transaction
from reliq.protocol import homes, spread
from reliq.protocol.home import Moved
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps

OK = Published("ok", 1)
FULL = Published("full", 1, 5, 5, 0)
MOVED = Published("moved", 1, moved=[0])
AWAY = RedisUnavailable("away")
SILENT = OutcomeUnknown("silent")
FOUR = layout_text(Layout(("1", "2", "3")))
SMALL, LARGE = b"x", b"x" * 5000


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which pass as the steps sleep."""
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(homes, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


class Cluster:
    """Queues, each in its own slot, with what each home answers to one publish after another; the last for ever."""

    def __init__(self, clock: Any, layout: str | None = None, **answers: Any) -> None:
        self.answers = {name.replace("_", "@partition."): one for name, one in answers.items()}
        self.asked: dict[str, int] = defaultdict(int)
        self._clock = clock
        pool = ProducerPool()
        pool.sharded = True
        self.queues = {name: QueueSteps(name, pool) for name in self.answers if "@" not in name}
        for queue in self.queues.values():
            queue.homes.first.introduced(1, Introduction(None, layout))
        self._layout = layout
        self._topics = TopicSteps(self.queues.__getitem__, pool, 1_000_000)

    def publish(self, body: bytes = SMALL, **options: Any) -> Any:
        return self._run(self._topics.publish("k", NewMessage(body, id="m", **options)))

    def _run(self, steps: Any) -> Any:
        answer, error = None, None
        while True:
            try:
                request = steps.throw(error) if error else steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer, error = None, None
            try:
                answer = self._answer(request)
            except ReliqError as raised:
                error = raised

    def _answer(self, request: Any) -> Any:
        match request:
            case Together():
                return [self._outcome(one) for one in request.steps]
            case Sleep():
                self._clock.now += request.seconds
                return None
            case Transaction():
                return [None, *[None] * (len(request.ops) - 2), self._answer(request.ops[-1])]
            case Op(script=None):
                return self._read(request)
            case Op():
                return self._published(request)
        replies = [self._outcome(one) for one in request]
        failed = [one for one in replies if isinstance(one, ReliqError)]
        if failed:
            carried_out = any(isinstance(one, Published) for one in replies)
            raise SILENT if carried_out else failed[0]
        return replies

    def _outcome(self, one: Any) -> Any:
        try:
            return self._answer(one) if isinstance(one, Op) else self._run(one)
        except ReliqError as error:
            return error

    def _read(self, op: Op[Any]) -> Any:
        if op.command == ("HGET", "reliq:topics", "version"):
            return "1"
        if op.command == ("HGETALL", "reliq:topics"):
            return {"version": "1", **{f"{name} #": "1" for name in self.queues}}
        return self._layout if op.command[0] == "HGET" else Introduction(None, self._layout)

    def _published(self, op: Op[Any]) -> Any:
        if op.script is None or op.script.name != "publish":
            return 1  # an announcement
        name = str(op.command[3]).split("{")[1].split("}")[0]
        self.asked[name] += 1
        answers = self.answers[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, ReliqError):
            raise answer
        return answer


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_an_error_of_one_queue_does_not_hide_that_another_one_has_the_message(clock, body, error):
    with pytest.raises(OutcomeUnknown) as caught:
        Cluster(clock, a=[OK], b=[error]).publish(body)
    assert caught.value.ids == ("m",)


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
def test_what_no_queue_has_got_is_a_certain_failure(clock, body):
    with pytest.raises(RedisUnavailable):
        Cluster(clock, a=[AWAY], b=[AWAY]).publish(body)


def test_an_error_says_who_got_a_large_message(clock):
    with pytest.raises(OutcomeUnknown, match=r"^away; only a, c got it$"):
        Cluster(clock, a=[OK], b=[AWAY], c=[OK]).publish(LARGE)


def test_an_error_that_redis_is_full_names_the_queues_that_got_the_message(clock):
    full = QueueFull("Redis is at its maxmemory")
    full.of_redis = True
    with pytest.raises(QueueFull, match="only a got it") as caught:
        Cluster(clock, a=[OK], b=[full]).publish(LARGE)
    assert (caught.value.reached, caught.value.of_redis) == ({"a": "m"}, True)


def test_an_unknown_outcome_of_one_queue_outweighs_a_full_one(clock):
    with pytest.raises(OutcomeUnknown):
        Cluster(clock, a=[FULL], b=[SILENT], c=[OK]).publish(LARGE)


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
def test_a_queue_that_got_it_before_the_home_of_its_key_had_moved_is_reached(clock, body):
    with pytest.raises(QueueFull, match="only a got it") as caught:
        Cluster(clock, a=[OK], b=[MOVED, FULL]).publish(body, key="k")
    assert caught.value.reached == {"a": "m"}


def test_a_home_that_fails_after_another_queue_has_got_it_is_no_certain_failure(clock):
    with pytest.raises(OutcomeUnknown, match="only a got it"):
        Cluster(clock, a=[OK], b=[MOVED, AWAY]).publish(key="k")


@pytest.mark.parametrize(("others", "error"), [({}, RedisUnavailable), ({"a": [OK]}, OutcomeUnknown)])
def test_a_change_of_partitions_that_does_not_take_effect_is_waited_for_ten_seconds(clock, others, error):
    began = clock.now
    with pytest.raises(error, match="the change of their number does not take effect") as caught:
        Cluster(clock, **others, b=[MOVED]).publish(key="k")
    assert 10.0 <= clock.now - began <= 10.2
    assert getattr(caught.value, "ids", ()) == (("m",) if others else ())


def test_a_send_waits_as_long_for_it(clock, monkeypatch):
    monkeypatch.setattr(spread.Spread, "_offer", refused)
    cluster, began = Cluster(clock, FOUR, q=[]), clock.now
    with pytest.raises(RedisUnavailable, match="the change of their number does not take effect"):
        cluster._run(cluster.queues["q"].send_many([NewMessage("x", id="m", key="k")]))
    assert 10.0 <= clock.now - began <= 10.2


def refused(self, offer):
    raise Moved(offer.name, {"m"}, {})
    yield


def four(clock, answer, **others):
    """A queue with four partitions that all answer the same."""
    return Cluster(clock, FOUR, q=[answer], q_1=[answer], q_2=[answer], q_3=[answer], **others)


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
def test_a_message_without_a_key_goes_to_a_partition_that_answers(clock, body):
    cluster = four(clock, AWAY)
    cluster.answers["q@partition.2"] = [OK]
    for _ in range(3):
        assert cluster.publish(body) == {"q": "m"}
    assert cluster.asked.pop("q@partition.2") == 3
    assert set(cluster.asked.values()) <= {1}  # those that are away are avoided


def test_each_partition_is_tried_once(clock):
    cluster = four(clock, AWAY)
    with pytest.raises(RedisUnavailable):
        cluster.publish()
    assert list(cluster.asked.values()) == [1] * 4


@pytest.mark.parametrize(("answer", "options"), [(SILENT, {}), (AWAY, {"key": "k"})])
def test_what_may_be_enqueued_or_has_its_home_there_goes_to_no_other_partition(clock, answer, options):
    cluster = four(clock, answer)
    with pytest.raises(type(answer)):
        cluster.publish(**options)
    assert list(cluster.asked.values()) == [1]


def test_other_queues_get_it_once_while_a_partition_is_looked_for(clock):
    cluster = four(clock, AWAY)
    cluster.answers["q@partition.3"] = [OK]
    cluster.answers["p"] = [OK]
    cluster.queues["p"] = QueueSteps("p", cluster.queues["q"].pool)
    cluster.queues["p"].homes.first.introduced(1, Introduction(None, None))
    assert cluster.publish() == {"p": "m", "q": "m"}
    assert (cluster.asked["p"], cluster.asked["q@partition.3"]) == (1, 1)
