"""Four well-known retry designs, each as a reader of its article would configure it, and each with its limit lifted.

Times are scaled down: a second of the article is a few milliseconds here. See docs/how-to/retries.md.
"""

import itertools
import time

import pytest

import reliq
from reliq.contract.outcomes import REASONS
from tests.support.workers import eventually, process, working


class Runs:
    """A handler's diary: when each message ran."""

    def __init__(self):
        self.at = {}

    def note(self, message):
        self.at.setdefault(message.id, []).append(time.monotonic())

    def gaps(self, identity):
        times = self.at[identity]
        return [later - sooner for sooner, later in itertools.pairwise(times)]


@pytest.fixture
def runs():
    return Runs()


@pytest.fixture
def queue(app):
    return app.queue("q")


def places(queue):
    """In how many places a message lies, counted at one instant."""
    stats = queue.stats()
    return stats.ready + stats.processing + stats.delayed + stats.dead


def failing(app, runs, **policy):
    @app.handler("q", **policy)
    def fail(message):
        runs.note(message)
        raise ConnectionError(f"the shop does not answer, try {message.failures + 1}")


# --- Sneakers' Maxretry: a fixed delay, then X-error with payload, reason and backtrace -------------------------------


def test_maxretry_waits_a_fixed_time_and_ends_in_the_error_queue_with_its_backtrace(app, queue, runs):
    failing(app, runs, retry=reliq.fixed("60ms", limit=5))
    identity = queue.send(b"\x00payload", headers={"content-type": "application/octet-stream"})
    with working(app, monitor=True):
        letter = eventually(lambda: queue.dead.get(identity))
    assert len(runs.at[identity]) == 6
    assert all(gap >= 0.06 for gap in runs.gaps(identity))
    assert (letter.body, letter.headers["content-type"], letter.reason) == (
        b"\x00payload", "application/octet-stream", "max_failures",
    )  # fmt: skip
    assert letter.last_error.error_class == "ConnectionError"
    assert "Traceback" in letter.last_error.text
    assert "in fail" in letter.last_error.text


def test_lifted_every_step_its_own_delay(app, queue, runs):
    """10 s, 100 s, 1 h, 2 h, 10 h is impossible there; here it is one line (a thousandth of it, and the hours less)."""
    failing(app, runs, retry=reliq.steps("10ms", "100ms", "150ms", "200ms", "300ms"))
    identity = queue.send("x")
    with working(app, monitor=True):
        eventually(lambda: queue.dead.get(identity))
    gaps = runs.gaps(identity)
    assert len(gaps) == 5
    assert all(gap >= delay for gap, delay in zip(gaps, (0.01, 0.1, 0.15, 0.2, 0.3), strict=True))


def test_lifted_the_message_is_at_every_instant_in_exactly_one_place(app, queue, runs):
    """There it is published to the error queue and then acked: two copies, or none, when the process dies between."""
    failing(app, runs, retry=reliq.fixed("1ms", limit=30))
    identity = queue.send("x")
    looks = 0
    with working(app, monitor=True):
        while queue.dead.get(identity) is None:
            assert places(queue) == 1
            looks += 1
    assert looks > 50
    assert set(app.queues()) == {"q"}, "no extra exchange or queue is needed"


# --- RabbitMQ, per-message TTL: first 10 s, x 3 each time, some randomness, tries counted in a header -----------------


def test_backoff_grows_threefold_and_the_tries_are_counted(app, queue, runs):
    seen = []

    @app.handler("q", retry=reliq.exponential(first="20ms", factor=3, jitter=0.1, limit=3))
    def fail(message):
        runs.note(message)
        seen.append((message.failures, message.headers["tenant"]))
        raise ValueError("no")

    identity = queue.send("x", headers={"tenant": "acme"})
    with working(app, monitor=True):
        eventually(lambda: queue.dead.get(identity))
    assert seen == [(0, "acme"), (1, "acme"), (2, "acme"), (3, "acme")]
    gaps = runs.gaps(identity)
    assert all(gap >= 0.9 * 0.02 * 3**place for place, gap in enumerate(gaps))


def test_lifted_a_message_due_sooner_is_never_behind_one_due_later(app, queue, runs):
    """There a long TTL at the head of the waiting queue blocks the shorter ones behind it."""

    @app.handler("q", retry=reliq.fixed(0))
    def fail_once(message):
        runs.note(message)
        if message.failures == 0:
            raise reliq.Retry(delay="1h" if message.body == b"long" else "30ms")

    long, short = queue.send_many(["long", "short"])
    with working(app, monitor=True):
        eventually(lambda: len(runs.at.get(short, [])) == 2)
        eventually(lambda: queue.stats().processing == 0)
    assert len(runs.at[long]) == 1
    assert (queue.stats().delayed, queue.stats().counters["acked"]) == (1, 1)


# --- The delayed retry queue: q, q@retry, q@failed; 30 s x 3, then a person fixes the bug and puts it back ------------


def test_three_retries_then_failed_then_fixed_and_put_back(app, queue, runs):
    bug = True

    @app.handler("q", retry=reliq.fixed("30ms", limit=3))
    def ship(message):
        runs.note(message)
        if bug:
            raise KeyError("street")

    ids = queue.send_many([{"order": number} for number in range(20)])
    with working(app, monitor=True):
        eventually(lambda: queue.stats().dead == 20)
        assert all(len(runs.at[identity]) == 4 for identity in ids)
        bug = False
        assert queue.dead.redrive(error_class="KeyError").redriven == 20
        eventually(lambda: queue.stats().counters.get("acked") == 20)
    assert (queue.stats().dead, queue.stats().counters["redriven"]) == (0, 20)


def test_lifted_what_a_killed_handler_was_holding_is_not_lost(app, queue, tmp_path):
    """There the consumer auto-acks: what it holds dies with it."""
    (tmp_path / "shop.py").write_text(
        "import os, pathlib, reliq\n"
        "app = reliq.Reliq()\n"
        "@app.handler('q', retry=reliq.fixed('30s', limit=3))\n"
        "def ship(message):\n"
        "    if not pathlib.Path('died').exists():\n"
        "        pathlib.Path('died').touch()\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    queue.send_many(range(10))
    with process("worker", "shop", "--processes", "2", folder=tmp_path, RELIQ_URL=app.url):
        eventually(lambda: queue.stats().counters.get("acked") == 10, timeout=60)
    assert (tmp_path / "died").exists()
    assert queue.stats().counters["reclaimed"] >= 1
    assert "retried" not in queue.stats().counters, "a holder that vanished is no failure of the handler"


# --- RocketMQ: %RETRY%group with 16 levels, then %DLQ%group; a consume timeout is a failure ---------------------------


def scaled(backoff, by):
    return lambda failures, error: None if (delay := backoff(failures, error)) is None else delay / by


def test_sixteen_retries_at_growing_levels_then_the_dead_letters(app, queue, runs):
    failing(app, runs, retry=scaled(reliq.rocketmq_levels(), 30_000))
    identity = queue.send("x")
    with working(app, monitor=True):
        letter = eventually(lambda: queue.dead.get(identity), timeout=30)
    levels = [10, 30, *(60 * minute for minute in range(1, 11)), 1200, 1800, 3600, 7200]
    gaps = runs.gaps(identity)
    assert (len(gaps), letter.failures) == (16, 17)
    assert all(gap >= level / 30_000 for gap, level in zip(gaps, levels, strict=True))


def test_a_consume_timeout_counts_as_a_failure(app, queue):
    release: list[bool] = []

    @app.handler("q", time_limit="50ms", retry=reliq.fixed("10ms", limit=1))
    def hang(message):
        eventually(lambda: release or message.lost)

    identity = queue.send("x")
    with working(app, monitor=True):
        letter = eventually(lambda: queue.dead.get(identity))
        release.append(True)
    assert [error.error_class for error in letter.errors] == ["reliq.errors.TimeLimitExceeded"] * 2


def test_lifted_levels_of_ones_own_and_dead_letters_anybody_can_read(app, queue, runs):
    """There the levels are those of the broker, for all queues; the DLQ is read back only with an operator's tool."""
    failing(app, runs, retry=reliq.fixed("5ms", limit=1))
    other = app.queue("other")

    @app.handler("other", retry=reliq.steps("10ms", "20ms", "30ms"))
    def fail(message):
        runs.note(message)
        raise ValueError("no")

    a, b = queue.send({"order": 1}), other.send({"order": 2})
    with working(app, monitor=True):
        eventually(lambda: queue.dead.get(a) and other.dead.get(b))
    assert (len(runs.at[a]), len(runs.at[b])) == (2, 4)
    (letter,) = queue.dead.list(error_class="ConnectionError")
    assert letter.json() == {"order": 1}
    assert queue.dead.redrive(ids=[a]).redriven == 1


# --- What none of them has --------------------------------------------------------------------------------------------


def test_failures_deliveries_and_expiry_are_counted_apart(app, queue):
    """One message of each kind; every limit has its own reason, and nothing is dropped."""
    queue.configure(max_deliveries=1)
    queue.send("vanish", id="vanish")
    held = queue.consumer(lease=1)
    held.claim()
    from tests.support.turns import Monitor

    eventually(lambda: Monitor(app.store).scan().died)

    @app.handler("q", retry=reliq.fixed("5ms", limit=1), dead_on=LookupError)
    def handle(message):
        raise LookupError if message.body == b"reject" else ValueError

    queue.send("fail", id="fail")
    queue.send("reject", id="reject")
    queue.send("expire", id="expire", ttl="1ms")
    app.store.call(reliq.ops.command("LPUSH", "reliq:{q}:messages", b"\xc1"))
    eventually(lambda: queue.stats().oldest_ready_age > 0.01)
    with working(app, monitor=True):
        eventually(lambda: queue.stats().dead == 5)
    letters = {letter.id: letter for letter in queue.dead.list()}
    reasons = {
        name: (one.reason, one.failures, one.deliveries) for name, one in letters.items() if one.reason != "decode"
    }
    assert reasons == {
        "vanish": ("max_deliveries", 0, 1),
        "fail": ("max_failures", 2, 0),
        "reject": ("rejected", 1, 0),
        "expire": ("expired", 0, 0),
    }
    counters = queue.stats().counters
    assert {reason: counters.get(f"dead:{reason}", 0) for reason in REASONS} == {
        **dict.fromkeys(REASONS, 1),
        "undecided": 0,  # of prepared messages only
        "invalid": 0,  # of rows of a Spark job only
        "predecessor": 0,  # of members of flows only
    }
    assert counters["dead_lettered"] == 5


def test_a_redrive_that_is_interrupted_anywhere_leaves_every_letter_in_one_place(app, queue):
    ids = queue.send_many(range(300))
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=300):
            consumer.dead(message, "no")

    class Interrupted(Exception):
        pass

    def interrupt(matched):
        raise Interrupted

    rounds = 0
    while queue.stats().dead:
        with pytest.raises(Interrupted):
            queue.dead.redrive(rate=1000, progress=interrupt)
        rounds += 1
        assert places(queue) == 300
    assert rounds > 1
    with queue.consumer() as consumer:
        assert {message.id for message in consumer.claim(limit=1000)} == set(ids)
