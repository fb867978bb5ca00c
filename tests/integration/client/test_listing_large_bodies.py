"""Lists of messages with large bodies: what is not shown stays in Redis. The bytes that Redis sends are the measure."""

import pytest
import redis

from reliq import ReliqError
from reliq.cli import main
from reliq.model.dead_letter import letter_field
from reliq.model.element import Extra
from reliq.model.keys import QueueKeys
from reliq.protocol import listing
from tests.integration.api.serving import serving
from tests.support.state import element

MIB = 1024 * 1024
LARGE = 4 * MIB
KEYS = QueueKeys("q")
LITTLE = 2 * MIB  #: bytes that Redis may send for a list: less than one of the bodies


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def large(server):
    """A queue with large messages in each state."""
    names = "abc"
    server.sadd("reliq:queues", "q")
    for place, name in enumerate(names):
        letter = element(name, body=name.encode() * LARGE, failures=1, extra=Extra(reason="rejected"))
        server.zadd(KEYS.dead, {letter: 1_700_000_000_000 + place})
        server.hset(KEYS.index, letter_field(name), 1_700_000_000_000 + place)
        server.zadd(KEYS.delayed, {element(f"d{name}", body=b"x" * LARGE, failures=1): 4_000_000_000_000 + place})
        server.lpush(KEYS.messages, element(f"r{name}", body=b"y" * LARGE))
    return names


def sent(server, call):
    before = server.info("stats")["total_net_output_bytes"]
    answer = call()
    return server.info("stats")["total_net_output_bytes"] - before, answer


def test_a_list_without_bodies_has_everything_else(server, large, queue):
    size, page = sent(server, lambda: queue.dead.list(bodies=False))
    assert size < LITTLE
    assert [(one.id, one.size, one.reason, one.failures) for one in page] == [
        (name, LARGE, "rejected", 1) for name in reversed(large)
    ]
    with pytest.raises(ReliqError, match=r"the body of message c \(4,194,304 bytes\) was not read"):
        _ = page[0].body
    size, delayed = sent(server, lambda: queue.delayed.list(bodies=False))
    assert (size < LITTLE, [(one.id, one.size) for one in delayed]) == (True, [(f"d{name}", LARGE) for name in large])


def test_a_list_with_bodies_reads_those_of_the_matching_letters_only(server, large, queue):
    assert [one.body[:2] for one in queue.dead.list()] == [b"cc", b"bb", b"aa"]
    size, page = sent(server, lambda: queue.dead.list(ids="b"))
    assert (size < LARGE + LITTLE, [one.body for one in page]) == (True, [b"b" * LARGE])
    size, _ = sent(server, lambda: queue.dead.list(reason="expired"))
    assert size < LITTLE
    size, letter = sent(server, lambda: queue.dead.get("a"))
    assert (size < LARGE + LITTLE, letter.body) == (True, b"a" * LARGE)
    size, _ = sent(server, lambda: queue.dead.redrive(dry_run=True))
    assert size < LITTLE


def test_a_page_ends_at_its_bytes_and_the_next_one_goes_on(large, queue, monkeypatch):
    monkeypatch.setattr(listing, "_PAGE_BYTES", 2 * LARGE)
    for filters in ({}, {"reason": "rejected"}):
        page = queue.dead.list(**filters)
        assert [one.id for one in page] == ["c", "b"]
        page = queue.dead.list(after=page.next, **filters)
        assert ([one.id for one in page], page.next) == (["a"], None)


def test_large_letters_are_redriven_and_purged(large, queue):
    assert queue.dead.purge(ids="a") == 1
    assert queue.dead.redrive().redriven == 2
    stats = queue.stats()
    assert (stats.dead, stats.ready) == (0, 5)
    assert stats.oldest_ready_age > 0


@pytest.mark.parametrize("command", [["dead", "list", "q"], ["delayed", "list", "q"], ["stats"], ["stats", "q"]])
def test_the_command_line_reads_no_body_for_a_list(server, url, large, command, capsys):
    size, status = sent(server, lambda: main.main([*command, "--url", url, "--json"]))
    assert (status, size < LITTLE) == (0, True)
    assert "xxx" not in capsys.readouterr().out


def test_the_service_and_its_dashboard_read_no_body_for_a_list(server, url, large):
    with serving(url) as service:
        for path in (
            "/v1/queues/q/dead", "/v1/queues/q/delayed", "/v1/queues/q", "/v1/queues", "/metrics", "/", "/queues/q",
            "/queues/q/dead", "/queues/q/dead?reason=rejected", "/queues/q/dead/letter?id=b",
        ):  # fmt: skip
            size, answer = sent(server, lambda path=path: service.get(path))
            assert (path, answer.status_code, size < LITTLE) == (path, 200, True)
        assert "4.0 MiB" in service.get("/queues/q/dead").text
        letter = service.get("/queues/q/dead/letter?id=b").text
        assert "Only its start is shown: download all of it." in letter
        assert service.get("/queues/q/dead/body?id=b").content == b"b" * LARGE
        assert service.get("/v1/queues/q/dead/b", timeout=60).json()["body"] == "b" * LARGE
        assert [one["size"] for one in service.get("/v1/queues/q/dead").json()["letters"]] == [LARGE] * 3
