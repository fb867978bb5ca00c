"""The protocol, explored exhaustively: no loss, no delivery after an ack that was answered, never two copies."""

import hashlib
import re

import pytest

from reliq import ops
from reliq.errors import OutcomeUnknown
from reliq.model.keys import QueueKeys, owner_of
from reliq.ops import Op, Transaction
from reliq.ops.request import script_named
from reliq.protocol.consumer import ConsumerSteps
from reliq_monitor.reclaim import take_back
from tests.model_checking.explorer import Explorer, State, Violation, show
from tests.support.state import KEYS

FOREVER = 12 * 3600.0
OTHER = QueueKeys("r")


def worker(name, cycles=1, queues=(KEYS,), verifies=False):
    """Claims, runs, acks, of each queue in turn; after a lost reply asks again.

    `verifies`: at the end it compares its list with what it holds, as every consumer does once a lease.
    """

    def steps(events):
        every = [ConsumerSteps(keys, name, FOREVER) for keys in queues]

        def connect_all():
            for consumer in every:
                consumer.connected(named=True)

        events.on_reconnect = connect_all
        for _ in range(cycles):
            for consumer in every:
                yield from handled(consumer, events)
        for consumer in every:
            if verifies:
                consumer._verified_at = -FOREVER  # a lease has passed
            while consumer.to_be_verified:
                yield from handled(consumer, events)
        events.append(f"idle {name}")

    return steps


def handled(consumer, events):
    """Claim one message and settle it; whether there was one."""
    messages = yield from again(lambda: consumer.claim(1))
    for message in messages:
        started(events, message)
        codes, _ = yield from again(lambda message=message: consumer.settle([message.element]))
        answered(events, message, codes)
    return bool(messages)


def started(events, message):
    events.append(f"started {message.queue} {message.id}")


def answered(events, message, code):
    if code == "d":
        events.append(f"acked {message.queue} {message.id}")


def pipelining_worker(name, waits=False):
    """Claims two messages, by BLMOVE if it `waits`; sends one ack after the other and reads their replies then.

    Each ack says that its message is the oldest of the list, the second one that it is once the first is carried out.
    """

    def steps(events):
        consumer = ConsumerSteps(KEYS, name, FOREVER)
        events.on_reconnect = lambda: consumer.connected(named=True)
        for _ in range(2):
            take = (lambda: consumer.wait(2, 0.001)) if waits else (lambda: consumer.claim(2))
            messages = yield from again(take)
            for message in messages:
                started(events, message)
            calls = [consumer.settle([message.element]) for message in messages]
            requests = [next(call) for call in calls]
            unanswered = []
            for call, request, message in zip(calls, requests, messages, strict=True):
                try:
                    codes, _ = yield from finished(call, request)
                except OutcomeUnknown:
                    unanswered.append(message)
                else:
                    answered(events, message, codes)
            for message in unanswered:
                codes, _ = yield from again(lambda message=message: consumer.settle([message.element]))
                answered(events, message, codes)
        while consumer.to_be_verified:
            yield from handled(consumer, events)
        events.append(f"idle {name}")

    return steps


def finished(call, request):
    """Run steps whose first request is known to their end."""
    while True:
        try:
            reply = yield request
        except OutcomeUnknown as error:
            call.throw(error)
            raise AssertionError("the steps go on without an answer") from None
        try:
            request = call.send(reply)
        except StopIteration as stop:
            return stop.value


def batch_worker(name):
    """Claims two messages and acks both with one call, as the two oldest of its list."""

    def steps(events):
        consumer = ConsumerSteps(KEYS, name, FOREVER)
        events.on_reconnect = lambda: consumer.connected(named=True)
        for _ in range(2):
            messages = yield from again(lambda: consumer.claim(2))
            for message in messages:
                started(events, message)
            if messages:
                elements = [message.element for message in messages]
                codes, _ = yield from again(lambda elements=elements: consumer.settle(elements))
                for message, code in zip(messages, codes, strict=True):
                    answered(events, message, code)
        while consumer.to_be_verified:
            yield from handled(consumer, events)
        events.append(f"idle {name}")

    return steps


def again(steps):
    for _ in range(2):
        try:
            return (yield from steps())
        except OutcomeUnknown:
            continue
    return (yield from steps())


def monitor(scans=1, queues=(KEYS,)):
    """Looks at every consumer; after a lost reply assumes nothing, and looks again at its next scan."""

    def steps(events):
        for _ in range(scans):
            for keys in queues:
                try:
                    for consumer in (yield ops.members(keys.consumers)):
                        yield from take_back(keys, consumer)
                except OutcomeUnknown:
                    continue

    return steps


def check(before: State, after: State, events_before, events_after) -> None:
    for keys in after.queues:
        no_delivery_after_an_ack(keys.queue, events_before, events_after)
        if after.copies(keys.messages) > after.messages:
            raise Violation(f"two claimable copies: {show(after)}")


def no_delivery_after_an_ack(queue, events_before, events_after) -> None:
    for identity in "ab":
        acked = any(f"acked {queue} {identity}" in events for events in events_before)
        starts = sum(events.count(f"started {queue} {identity}") for events in events_after)
        if acked and starts > sum(events.count(f"started {queue} {identity}") for events in events_before):
            raise Violation("a delivery started after an ack that was answered")


def one_copy(before: State, after: State, events_before, events_after) -> None:
    """Stronger than the promise: at every instant the message is in exactly one place, or acked."""
    check(before, after, events_before, events_after)
    in_one_place(before, after, events_before, events_after)


def in_one_place(before: State, after: State, events_before, events_after) -> None:
    for keys in after.queues:
        copies = after.copies(keys.messages.removesuffix("messages"))
        if copies != after.messages - after.acked(keys):
            raise Violation(f"{copies} copies in {keys.queue!r}, acked={after.acked(keys)}: {show(after)}")


def never_lost(state: State, explorer: Explorer) -> None:
    """No process can go on: all leases expire, a monitor looks, and the message must be ready or acked."""
    nothing_is_stuck(state, explorer)
    explorer.restore(state)
    for keys in state.queues:
        for consumer in dict(state.data.consumers).get(keys.consumers, ()):
            explorer.redis.set(keys.lease(consumer), 1)
            explorer.store.run(take_back(keys, consumer))
        ready = explorer.redis.llen(keys.messages)
        left = state.messages - state.acked(keys)
        if ready != left:
            raise Violation(f"{'resurrected' if ready > left else 'lost'}: {ready} ready, from {show(state)}")


def nothing_is_stuck(state: State, explorer: Explorer) -> None:
    """A consumer that lives and is idle has nothing in its list: while it renews its lease, no one else looks there.

    One whose connection has ended meanwhile looks with its next call.
    """
    alive = {key for key, lasts in state.data.leases if lasts}
    every = zip(state.lives, explorer.events(state), strict=True)
    idle = [events[-1] for life, events in every if events and not life.crashed and not life.cut_off]
    for key, items in state.lists:
        consumer = key.rpartition(":processing:")[2]
        if items and key.replace(":processing:", ":lease:") in alive and f"idle {owner_of(consumer)}" in idle:
            raise Violation(f"stuck with a consumer that lives: {show(state)}")


@pytest.fixture
def explore(url, monkeypatch):
    explorers = []

    def run(actors, check=one_copy, settled=never_lost, fenced=True, **faults):
        def patch(nonce):
            monkeypatch.setattr("reliq.model.message.new_nonce", nonce)

        explorer = Explorer(url, actors, check, settled, patch, fenced)
        explorers.append(explorer)
        return explorer.explore(**faults)

    yield run
    for explorer in explorers:
        explorer.close()


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_two_workers_and_two_monitors_and_a_lease_that_expires_anywhere(explore):
    actors = [worker("w"), worker("v"), monitor(), monitor()]
    assert explore(actors, expiries=1) > 5_000


def test_a_crash_and_a_lost_reply_anywhere_with_two_monitors(explore):
    assert explore([worker("w"), monitor(), monitor()], crashes=1, losses=1, expiries=1) > 5_000


def test_a_crash_anywhere_with_two_workers(explore):
    assert explore([worker("w"), worker("v"), monitor()], crashes=1, expiries=1) > 1_000


def test_two_lost_replies_anywhere(explore):
    assert explore([worker("w"), monitor(2)], losses=2, expiries=1) > 2_000


def test_a_late_request_anywhere(explore):
    """A claim, an ack, an EXEC that was given up is carried out at any later moment before its connection is closed."""
    assert explore([worker("w"), monitor()], lates=1, expiries=1) > 500


def test_a_late_request_and_a_lost_reply_with_two_workers(explore):
    assert explore([worker("w"), worker("v")], lates=1, losses=1) > 1_000


def test_late_requests_on_connections_that_cannot_be_closed(explore):
    """Where CLIENT KILL is refused, the comparison once a lease finds what a late claim has moved."""
    assert explore([worker("w", verifies=True), monitor()], fenced=False, lates=1, expiries=1) > 500


def test_a_restart_that_loses_the_latest_step(explore):
    """Redis says nothing of it; what a consumer settled lies in its list again, or what it claimed is ready again."""
    assert explore([worker("w", cycles=2), monitor()], check=in_one_place, restarts=1) > 100


def test_a_restart_and_a_lost_reply_with_two_workers(explore):
    assert explore([worker("w", cycles=2), worker("v")], check=in_one_place, restarts=1, losses=1) > 1_000


def test_calls_that_do_not_renew_the_lease(explore, monkeypatch):
    """The heartbeat has just renewed it."""

    def leave_it(steps):
        steps.claimant.renews = False

    monkeypatch.setattr(ConsumerSteps, "_renewing_now", leave_it)
    assert explore([worker("w"), worker("v"), monitor()], losses=1, expiries=1) > 1_000


def test_two_queues_of_one_process_with_a_crash_anywhere(explore):
    queues = (KEYS, OTHER)
    assert explore([worker("w", queues=queues), monitor(queues=queues)], queues=queues, crashes=1, expiries=1) > 500


# --- acks in a row: the script cuts off the oldest messages of the list, if they are those acked ----------------------


@pytest.mark.parametrize("actor", [batch_worker, pipelining_worker])
def test_acks_in_a_row_with_lost_replies_and_a_lease_that_expires_anywhere(explore, actor):
    assert explore([actor("w"), monitor()], messages="ab", losses=1, expiries=1) > 300


@pytest.mark.parametrize("actor", [batch_worker, pipelining_worker])
def test_acks_in_a_row_with_a_late_request(explore, actor):
    assert explore([actor("w"), monitor()], messages="ab", lates=1, expiries=1) > 200


def test_acks_in_a_row_with_a_crash_and_two_monitors(explore):
    assert explore([batch_worker("w"), monitor(), monitor()], messages="ab", crashes=1) > 300


def test_acks_in_a_row_of_two_workers(explore):
    assert explore([batch_worker("w"), pipelining_worker("v")], messages="ab", losses=1) > 200


def test_acks_in_a_row_after_a_late_blmove(explore):
    waiting = pipelining_worker("w", waits=True)
    assert explore([waiting], messages="ab", lates=1, losses=1) > 100


def test_acks_in_a_row_with_a_restart(explore):
    assert explore([pipelining_worker("w"), monitor()], check=in_one_place, messages="ab", restarts=1) > 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_at_once(explore):
    actors = [worker("w"), worker("v"), monitor(), monitor()]
    assert explore(actors, crashes=1, losses=1, expiries=1) > 50_000


# --- the explorer can see: faulty protocols must fail under it --------------------------------------------------------


def test_without_closed_connections_and_comparisons_a_late_claim_is_stuck(explore):
    with pytest.raises(Violation, match="stuck"):
        explore([worker("w"), monitor()], fenced=False, lates=1)


def test_a_consumer_that_is_not_told_of_a_reconnect_is_stuck(explore, monkeypatch):
    monkeypatch.setattr(ConsumerSteps, "connected", lambda self, named: None)
    with pytest.raises(Violation, match="stuck"):
        explore([worker("w", cycles=2), monitor()], check=in_one_place, restarts=1)


def test_acks_in_a_row_that_are_not_compared_with_the_list_cut_off_another_message(explore, monkeypatch):
    """Without a look at the ends of the row, an ack whose predecessor got lost removes another message."""
    settle = script_named("settle")
    unchecked = re.sub(r"\n  if row > 0 and not .*?\n  end\n", "\n", settle.source, flags=re.DOTALL)
    assert unchecked != settle.source
    monkeypatch.setattr(settle, "source", unchecked)
    monkeypatch.setattr(settle, "sha", hashlib.sha1(unchecked.encode(), usedforsecurity=False).hexdigest())
    with pytest.raises(Violation):
        explore([pipelining_worker("w"), monitor()], messages="ab", losses=1)


SHARED = "reliq:{q}:processing"


def classic_worker(events):
    """One processing list for all; ack is a bare LREM."""
    element = yield Op(("LMOVE", KEYS.messages, SHARED, "RIGHT", "LEFT"))
    if element is None:
        return
    events.append("started q a")
    if (yield Op(("LREM", SHARED, -1, element))) == 1:
        events.append("acked q a")
        yield Op(("HINCRBY", KEYS.counters, "acked", 1))


def classic_monitor(events):
    """Scan, then MULTI LREM+LPUSH without WATCH, the element unchanged; on conflict LREM from both lists."""
    elements = yield Op(("LRANGE", SHARED, 0, -1))
    for element in elements:
        removed, _ = yield Transaction(
            (Op(("LREM", SHARED, -1, element)), Op(("LPUSH", KEYS.messages, element)))
        )  # fmt: skip
        if removed == 0:
            yield Transaction((Op(("LREM", KEYS.messages, 1, element)), Op(("LREM", SHARED, 1, element))))


def only_resurrection(before: State, after: State, events_before, events_after) -> None:
    no_delivery_after_an_ack("q", events_before, events_after)


def gone(state: State, explorer: Explorer) -> None:
    if not state.acked() and state.copies() == 0:
        raise Violation("lost")


def nothing(*_):
    return None


def test_the_classic_protocol_redelivers_after_an_ack(explore):
    actors = [classic_worker, classic_worker, classic_monitor]
    with pytest.raises(Violation, match="started after an ack"):
        explore(actors, check=only_resurrection, settled=nothing)


def test_the_classic_protocol_loses_the_message_with_two_monitors(explore):
    actors = [classic_worker, classic_worker, classic_monitor, classic_monitor]
    with pytest.raises(Violation, match="lost after"):
        explore(actors, check=nothing, settled=gone, crashes=1)
