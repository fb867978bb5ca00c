"""A duty is one class and one entry in the list: the monitor runs, measures and logs it like the others."""

import logging
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.observability.prometheus import Exporter
from reliq.transport.store import Store
from reliq_monitor import node_monitor
from reliq_monitor.duties import COMMON, DUTIES
from reliq_monitor.duty import Duty
from reliq_monitor.node_monitor import NodeMonitor
from reliq_monitor.place import WHOLE, Place
from tests.support.workers import eventually

KEYS = QueueKeys("q")


class Counting(Duty[int]):
    """Counts its turns in each queue that has the key it seeks."""

    name = "counting"
    effect = "turns are not counted"
    seeks = "followed"

    def turn(self, survey):
        """Count one more turn."""
        for keys in survey.found[self.seeks]:
            yield from survey.attempts.of_queue(self.name, keys, ops.one(ops.command("INCR", f"turns:{keys.queue}")), 0)
        return 1


class Broken(Duty[None]):
    """Fails with an error of its own."""

    name = "broken"
    effect = "nothing"

    def turn(self, survey):
        """Fail."""
        yield ops.server_time()
        raise KeyError("a mistake in the code")


class Rare(Counting):
    """Has a turn an hour, and belongs to no queue."""

    name = "rare"
    interval = 3600.0
    of_queues = False
    common = "@rare"

    def turn(self, survey):
        """Count one more turn."""
        return (yield ops.command("INCR", "turns of rare"))


@pytest.fixture
def running(url, monkeypatch):
    """Start a monitor with more duties; stopped at the end."""
    stopping, threads = threading.Event(), []

    def start(*more, place=WHOLE):
        monkeypatch.setattr(node_monitor, "DUTIES", (*more, *DUTIES))
        monitor = NodeMonitor(Store(url), 0.05, None, 3.0, place)
        threads.append(threading.Thread(target=monitor.run, args=(stopping,)))
        threads[-1].start()
        return monitor

    yield start
    stopping.set()
    for thread in threads:
        thread.join()


def metrics(url, monitor):
    body, _ = Exporter(Store(url), monitor=monitor.state).render()
    return {family.name: family.samples for family in text_string_to_metric_families(body.decode())}


def test_a_duty_of_the_list_has_its_turns_in_the_queues_that_have_its_key(app, client, running):
    app.queue("other").send("x")
    client.sadd("reliq:queues", "q")
    client.set(KEYS.followed, "x")
    running(Counting)
    eventually(lambda: int(client.get("turns:q") or 0) >= 3)
    assert not client.exists("turns:other")


def test_failures_of_a_duty_are_counted_from_zero_logged_once_and_over_when_it_works_again(
    app, url, client, running, caplog
):  # fmt: skip
    caplog.set_level(logging.WARNING, "reliq.monitor")
    client.sadd("reliq:queues", "q")
    client.set(KEYS.followed, "x")
    monitor = running(Counting)
    assert monitor.state().failures["counting"] == 0
    with client.pipeline() as at_once:  # the duty counts its turns there
        at_once.delete("turns:q").lpush("turns:q", "of another application").execute()
    eventually(lambda: monitor.state().failing == {("counting", "q")})
    found = metrics(url, monitor)
    assert {"duty": "counting"} in [one.labels for one in found["reliq_monitor_duty_failures"]]
    failing = [one.labels for one in found["reliq_monitor_duty_failing"] if one.value]
    assert failing == [{"duty": "counting", "queue": "q"}]
    client.delete("turns:q")
    eventually(lambda: not monitor.state().failing)
    said = [record.getMessage() for record in caplog.records if "duty=counting queue=q" in record.getMessage()]
    assert len(said) == 2
    assert "works again" in said[1]


def test_a_mistake_in_one_duty_stops_no_other(app, client, running, caplog):
    monitor = running(Broken)
    app.queue("q").send("x", delay=0.01)
    eventually(lambda: app.queue("q").stats().ready == 1, what="the duties after it have their turns")
    assert monitor.state().failing == {("broken", "")}
    eventually(lambda: monitor.state().failures["broken"] >= 1)
    assert not any(count for duty, count in monitor.state().failures.items() if duty != "broken")
    assert any(record.exc_info and "duty=broken" in record.getMessage() for record in caplog.records)


def test_a_duty_without_queues_has_one_leader_and_its_own_interval(app, client, running):
    app.queue("q").send("x")
    place = Place(common=(*COMMON, Rare.common))
    for monitor in [running(Rare, place=place) for _ in range(2)]:
        eventually(lambda: monitor.state().members == 2)  # noqa: B023
        eventually(lambda: time.time() - monitor.state().last_scan_at < 1)  # noqa: B023
    assert int(client.get("turns of rare")) in (1, 2), "a second one if the second monitor leads it from now on"


@pytest.mark.parametrize("module", ["monitor", "node_monitor", "cluster_monitor", "lookout", "rota", "place", "calls"])
def test_the_loop_names_no_duty(module):
    text = (Path(str(node_monitor.__file__)).parent / f"{module}.py").read_text(encoding="utf-8")
    assert {duty for duty in DUTIES if f'"{duty.name}"' in text or duty.__name__ in text} == set()


def test_the_loop_is_small():
    methods = [one for one in vars(NodeMonitor).values() if callable(one) or isinstance(one, property)]
    assert len(methods) <= 15
