"""Every answer may be lost after its command ran: nothing is lost with it, doubled or brought back."""

import pytest

from reliq import Reliq, ops
from reliq.contract.values import INLINE_BODY_BYTES
from reliq.model.keys import QueueKeys
from reliq.transport import retry
from tests.integration.client.cuts import rounds


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """Between two tries: the server is there, only the answer is not."""
    monkeypatch.setattr(retry, "_PAUSES", (0.0, 0.0005))


def proven(app: Reliq, url: str, cuts: int, share: float, size: int = 200) -> None:
    cutter, ledger = rounds(url, cuts, share, seed=cuts, size=size)
    assert cutter.cuts.total() >= cuts
    assert set(ledger.received) >= ledger.sent, "lost"
    assert set(ledger.received.values()) == {1}, "doubled, or brought back after its ack"
    assert set(ledger.received) <= ledger.sent | ledger.unknown
    stats = app.queue("q").stats()
    assert (stats.prepared, stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0, 0)
    assert stats.counters["acked"] == len(ledger.received)
    assert stats.counters["withdrawn"] == len(ledger.withdrawn)
    assert stats.counters["enqueued"] == len(ledger.received) + len(ledger.withdrawn)
    assert app.queue("r").stats().ready == len(ledger.elsewhere)
    apart = [app.store.call(ops.command("HLEN", QueueKeys(name).bodies)) for name in "qr"]
    assert apart == [0, len(ledger.elsewhere) if size > INLINE_BODY_BYTES else 0]


@pytest.mark.parametrize(("cuts", "share"), [(250, 0.1), (500, 0.3)])
def test_nothing_is_lost_or_doubled_by_hundreds_of_lost_answers(app, url, cuts, share):
    proven(app, url, cuts, share)


def test_five_hundred_cuts_of_large_bodies(app, url):
    proven(app, url, 500, 0.3, size=64 * 1024)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_thousand_cuts_of_large_bodies(app, url, share):
    proven(app, url, 500, share, size=64 * 1024)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_a_hundred_thousand_cuts(app, url, share):
    proven(app, url, 34_000, share)
