"""The metrics of `reliq worker`: asked for or not, of one process or several."""

import fcntl
import os
import shutil
import urllib.request
from pathlib import Path

import pytest

import reliq
from reliq.observability.histograms import PROCESS
from reliq.transport.store import Store
from reliq.worker import Options
from reliq.worker.metrics import Metering, of_child


@pytest.fixture
def shop(app):
    @app.handler("orders")
    def handle(message): ...

    @app.handler("mails")
    async def handle_async(message): ...

    return app


def scraped(metering):
    with urllib.request.urlopen(f"http://127.0.0.1:{metering._server.port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_nobody_measures_unless_metrics_are_served(shop):
    with Metering(shop.handlers, Options(), 3) as metering:
        assert metering.folder is None


def test_what_children_measure_is_served_by_their_parent(shop, url):
    with Metering(shop.handlers, Options(), 2) as metering:
        metering.serve(Store(url), 0, "127.0.0.1")
        folder = metering.folder
        assert folder is not None
        for place in range(2):
            of_child(folder, place).add(PROCESS, ("orders",), [0.5] * (place + 1))
        assert 'reliq_message_process_seconds_count{queue="orders"} 3.0' in scraped(metering)
    assert not Path(folder).exists()


def test_a_child_with_newer_code_shares_the_queues_of_its_parent_and_spoils_no_other(shop, url):
    """A file that the child cut to its own queues would end the parent with SIGBUS, or count for another queue."""
    with Metering(shop.handlers, Options(), 2) as metering:
        metering.serve(Store(url), 0, "127.0.0.1")
        child = of_child(str(metering.folder), 0)
        child.add(PROCESS, ("new",), [0.5])
        child.add(PROCESS, ("orders",), [0.5])
        size = (Path(str(metering.folder)) / "0").stat().st_size
        text = scraped(metering)
        assert 'reliq_message_process_seconds_count{queue="orders"} 1.0' in text
        assert 'queue="new"' not in text
        assert (Path(str(metering.folder)) / "1").stat().st_size == size


def test_what_is_shared_is_locked_and_without_it_a_child_works_on(shop, url, caplog):
    """systemd-tmpfiles removes what is old from /tmp, but for what is locked; others remove it nevertheless."""
    with Metering(shop.handlers, Options(), 2) as metering:
        metering.serve(Store(url), 0, "127.0.0.1")
        folder = os.open(str(metering.folder), os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        shutil.rmtree(str(metering.folder))
        of_child(str(metering.folder), 0).add(PROCESS, ("orders",), [0.5])
        assert "not_measured" in caplog.text
        assert scraped(metering)


def test_workers_wanted_count_all_handlers_that_run_at_once(shop, url):
    for name in ("orders", "mails"):
        shop.queue(name).send_many(["x"] * 60)
    with Metering(shop.handlers, Options(threads=4, concurrency=50), 2) as metering:
        metering.serve(Store(url), 0, "127.0.0.1")
        for name in ("orders", "mails"):
            metering.own.add(PROCESS, (name,), [10.0])
        text = scraped(metering)
    # 60 runs of 10 s in 30 s keep 20 handlers busy: 3 workers of 2 processes with 4 threads, 1 of 2 with 50 tasks.
    assert 'reliq_desired_workers{queue="orders"} 3.0' in text
    assert 'reliq_desired_workers{queue="mails"} 1.0' in text


def test_one_process_measures_for_itself(shop, url):
    with Metering(shop.handlers, Options(), 1) as metering:
        metering.serve(Store(url), 0, "127.0.0.1")
        assert metering.folder is None
        metering.own.recovered("orders", 1.0, 1)
        assert 'reliq_recovery_seconds_count{queue="orders"} 1.0' in scraped(metering)


def test_an_address_that_is_taken_is_refused_before_any_work(shop, url):
    with Metering(shop.handlers, Options(), 1) as first, Metering(shop.handlers, Options(), 1) as second:
        first.serve(Store(url), 0, "127.0.0.1")
        with pytest.raises(reliq.InvalidSetting):
            second.serve(Store(url), first._server.port, "127.0.0.1")
