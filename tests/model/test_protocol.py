"""The protocol, explored exhaustively: no loss, no delivery after an ack that was answered, never two copies."""

import dataclasses

import pytest

from reliq import ops
from reliq.errors import OutcomeUnknown
from reliq.holdings import Holdings
from reliq.ops import Op, Transaction
from reliq_monitor.reclaim import take_back
from tests.model.explorer import Explorer, State, Violation, show
from tests.state import KEYS

FOREVER = 12 * 3600.0


def worker(name, cycles=1):
    """Claims, runs, acks; after a lost reply asks again."""

    def steps(events):
        holdings = Holdings(KEYS, name, FOREVER)
        for _ in range(cycles):
            messages = yield from again(lambda: holdings.claim(1))
            for message in messages:
                events.append("started")
                codes, _ = yield from again(lambda message=message: holdings.settle([message.element]))
                if codes == "d":
                    events.append("acked")

    return steps


def again(steps, tries=3):
    for _ in range(tries - 1):
        try:
            return (yield from steps())
        except OutcomeUnknown:
            continue
    return (yield from steps())


def monitor(scans=1):
    """Looks at every consumer; after a lost reply assumes nothing, and looks again at its next scan."""

    def steps(events):
        for _ in range(scans):
            try:
                for consumer in (yield ops.members(KEYS.consumers)):
                    yield from take_back(KEYS, consumer)
            except OutcomeUnknown:
                continue

    return steps


def check(before: State, after: State, events_before, events_after) -> None:
    acked = any("acked" in events for events in events_before)
    starts = sum(events.count("started") for events in events_after)
    if acked and starts > sum(events.count("started") for events in events_before):
        raise Violation("a delivery started after an ack that was answered")
    if after.copies(KEYS.messages) > 1:
        raise Violation(f"two claimable copies: {show(after)}")


def one_copy(before: State, after: State, events_before, events_after) -> None:
    """Stronger than the promise: at every instant the message is in exactly one place, or acked."""
    check(before, after, events_before, events_after)
    if after.copies() != (0 if after.acked else 1):
        raise Violation(f"{after.copies()} copies, acked={after.acked}: {show(after)}")


def never_lost(state: State, explorer: Explorer) -> None:
    """Nobody can go on: all leases run out, a monitor looks, and the message must be ready, or it was acked."""
    explorer.restore(state)
    for consumer in state.consumers:
        explorer.redis.set(KEYS.lease(consumer), 1)
        explorer.store.run(take_back(KEYS, consumer))
    ready = explorer.redis.llen(KEYS.messages)
    if ready != (0 if state.acked else 1):
        raise Violation(f"{'resurrected' if state.acked else 'lost'}: {ready} ready, from {show(state)}")


@pytest.fixture
def explore(url, monkeypatch):
    explorers = []

    def run(actors, check=one_copy, settled=never_lost, **faults):
        def patch(nonce):
            monkeypatch.setattr("reliq.message.new_nonce", nonce)

        explorer = Explorer(url, actors, check, settled, patch)
        explorers.append(explorer)
        return explorer.explore(**faults)

    yield run
    for explorer in explorers:
        explorer.close()


def test_two_workers_and_two_monitors_and_a_lease_that_expires_anywhere(explore):
    actors = [worker("w"), worker("v"), monitor(), monitor()]
    assert explore(actors, crashes=0, losses=0, expiries=1) > 5_000


def test_a_crash_and_a_lost_reply_anywhere_with_two_monitors(explore):
    assert explore([worker("w"), monitor(), monitor()], crashes=1, losses=1, expiries=1) > 5_000


def test_a_crash_anywhere_with_two_workers(explore):
    assert explore([worker("w"), worker("v"), monitor()], crashes=1, losses=0, expiries=1) > 1_000


def test_two_lost_replies_anywhere(explore):
    assert explore([worker("w"), monitor(2)], crashes=0, losses=2, expiries=1) > 2_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_at_once(explore):
    actors = [worker("w"), worker("v"), monitor(), monitor()]
    assert explore(actors, crashes=1, losses=1, expiries=1) > 50_000


# --- the explorer can see: the classic protocol must fail under it ----------------------------------------------------

SHARED = "reliq:{q}:processing"


def classic_worker(events):
    """One processing list for all; ack is a bare LREM."""
    element = yield Op(("LMOVE", KEYS.messages, SHARED, "RIGHT", "LEFT"))
    if element is None:
        return
    events.append("started")
    if (yield Op(("LREM", SHARED, -1, element))) == 1:
        events.append("acked")
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
    if any("acked" in events for events in events_before):
        check(before, dataclasses.replace(after, lists=()), events_before, events_after)


def gone(state: State, explorer: Explorer) -> None:
    if not state.acked and state.copies() == 0:
        raise Violation("lost")


def nothing(*_):
    return None


def test_the_classic_protocol_redelivers_after_an_ack(explore):
    actors = [classic_worker, classic_worker, classic_monitor]
    with pytest.raises(Violation, match="started after an ack"):
        explore(actors, check=only_resurrection, settled=nothing, crashes=0, losses=0, expiries=0)


def test_the_classic_protocol_loses_the_message_with_two_monitors(explore):
    actors = [classic_worker, classic_worker, classic_monitor, classic_monitor]
    with pytest.raises(Violation, match="lost after"):
        explore(actors, check=nothing, settled=gone, crashes=1, losses=0, expiries=0)
