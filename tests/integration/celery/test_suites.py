"""The integration suites of kombu and Celery pass on reliq: what passes on Celery's Redis transport passes here."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reliq.embedded import EmbeddedRedis
from tests.integration.celery.suites import CACHE, CELERY, KOMBU, Outcome, run

pytestmark = pytest.mark.celery

#: Tests that are left out, by name, and why. One that fails leaves traces that fail those of the result backend.
LEFT_OUT = {
    "test_scheduled": "lists the worker's memory; an ETA waits in Redis. Tested apart, with eta_in_worker=True",
    "test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": "for RabbitMQ: Celery skips it by the name redis://",
    "test_AzureBlockBlobBackend": "needs an account at Azure",
}
SUITE = ("t/integration", "--ignore=t/integration/test_backend.py", "-k")  # it cannot even be imported without Azure's
PARTS = 5  #: at the same time; most tests wait


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis of its own: the suites leave messages behind."""
    with EmbeddedRedis() as server:
        yield server.url


def failed(outcomes: list[Outcome]) -> list[str]:
    return sorted(one.test for one in outcomes if one.result == "failed")


@pytest.mark.slow
def test_the_suite_of_kombu(redis_url: str) -> None:
    tests = str(Path(__file__).with_name("kombu_suite.py"))
    outcomes = run(KOMBU.suite(), f"reliq+{redis_url}", [tests], timeout=150)
    assert len(outcomes) == 30
    if first := failed(outcomes):  # many of them wait for a message for one second, which a busy machine may take
        again = run(KOMBU.suite(), f"reliq+{redis_url}", [tests, "-k", _any_of(first)], timeout=150)
        assert failed(again) == []


def test_a_part_of_the_suite_of_celery(redis_url: str) -> None:
    arguments = [
        "t/integration/test_inspect.py", "t/integration/test_canvas.py",
        "-k", "test_ping or test_stats or test_simple_chain or test_chord_on_error",
    ]  # fmt: skip
    outcomes = run(CELERY.suite(), f"reliq+{redis_url.replace('/0', '/1')}", arguments, timeout=150)
    assert failed(outcomes) == []
    assert sum(one.result == "passed" for one in outcomes) >= 4


def test_scheduled_tasks_in_the_memory_of_the_worker(redis_url: str) -> None:
    options = {"broker_transport_options": {"eta_in_worker": True}}
    arguments = ["t/integration/test_inspect.py", "-k", "test_scheduled"]
    outcomes = run(CELERY.suite(), f"reliq+{redis_url.replace('/0', '/1')}", arguments, 100, options)
    assert [one.result for one in outcomes] == ["passed"]


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_the_suite_of_celery(redis_url: str) -> None:
    """All of it, in parts at the same time; what fails is tried again, and must fail on the Redis transport, too."""
    suite, reliq, redis = CELERY.suite(), f"reliq+{redis_url.replace('/0', '/1')}", redis_url.replace("/0", "/2")
    with ThreadPoolExecutor(PARTS) as pool:
        outcomes = [one for part in pool.map(_part, range(PARTS)) for one in part]
    first = failed(outcomes)
    again = _only(run(suite, reliq, _selection(first), timeout=1500), first) if first else []
    on_redis = _only(run(suite, redis, _selection(again), timeout=1500), again) if again else []
    report = _report(outcomes, first, again, on_redis)
    (CACHE.parent / "celery-suite.md").write_text(report)
    print(report)
    assert again == on_redis


def _part(part: int) -> list[Outcome]:
    """Run a part of the suite on a Redis of its own."""
    with EmbeddedRedis() as server:
        broker = f"reliq+{server.url.replace('/0', '/1')}"
        return run(CELERY.suite(), broker, [*SUITE, f"not ({' or '.join(LEFT_OUT)})"], timeout=3000, part=(part, PARTS))


def _selection(tests: list[str]) -> list[str]:
    return [*SUITE, _any_of(tests)]


def _any_of(tests: list[str]) -> str:
    return " or ".join(sorted({one.rpartition("::")[2].partition("[")[0] for one in tests}))


def _only(outcomes: list[Outcome], tests: list[str]) -> list[str]:
    return [one for one in failed(outcomes) if one in tests]


def _report(outcomes: list[Outcome], first: list[str], again: list[str], on_redis: list[str]) -> str:
    count = {name: sum(one.result == name for one in outcomes) for name in ("passed", "skipped", "failed")}
    lines = [f"Celery {CELERY.version}: {count['passed']} passed, {count['skipped']} skipped, {count['failed']} failed"]
    lines += [f"- passed: {name} {number}" for name, number in sorted(_passed(outcomes).items())]
    lines += [f"- left out: {name}: {reason}" for name, reason in LEFT_OUT.items()]
    lines += [f"- skipped: {one.test}: {one.reason}" for one in outcomes if one.result == "skipped"]
    once = [one for one in outcomes if one.test in first and one.test not in again]
    lines += [f"- failed once, passed when it was tried again: {one.test}: {one.reason}" for one in once]
    lines += [f"- fails, also on the Redis transport: {one}" for one in again if one in on_redis]
    lines += [f"- fails here only: {one}" for one in again if one not in on_redis]
    return "\n".join(lines) + "\n"


def _passed(outcomes: list[Outcome]) -> Counter[str]:
    """Count what passed by file."""
    return Counter(one.test.partition("::")[0].partition(".")[0] for one in outcomes if one.result == "passed")
