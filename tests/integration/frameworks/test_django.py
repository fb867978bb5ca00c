"""Django's tasks on reliq: sent when a transaction commits, run by `reliq worker`, dead letters after their retries."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reliq
from tests.support.workers import ROOT, eventually

SHOP = ROOT / "examples" / "django_shop"


@pytest.fixture
def shop(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The tasks of the example, in this process."""
    monkeypatch.setenv("RELIQ_URL", url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "settings")
    monkeypatch.setenv("SHOP_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SHOP_DB", str(tmp_path / "db"))
    monkeypatch.syspath_prepend(SHOP)
    import django

    django.setup()
    import shop

    yield shop
    from django.db import connections

    connections.close_all()


def environment() -> dict[str, str]:
    paths = [SHOP, ROOT, ROOT / "api", ROOT / "monitor"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run_all(queue: reliq.Queue) -> None:
    """Run a worker in a process of its own until the queue is empty."""
    command = [sys.executable, "-m", "reliq", "worker", "reliq.contrib.django.worker:app", "--quiet"]
    worker = subprocess.Popen(command, env=environment())
    try:
        eventually(lambda: (now := queue.stats()).ready + now.processing == 0, timeout=30)
    finally:
        worker.terminate()
        worker.wait(timeout=30)


def test_a_task_is_sent_when_its_transaction_commits(app: reliq.Reliq, shop: Any, tmp_path: Path) -> None:
    from django.db import transaction

    queue = app.queue("default")
    with transaction.atomic():
        result = shop.ship.enqueue(1)
        assert queue.stats().ready == 0
    assert queue.stats().ready == 1
    with transaction.atomic():
        shop.ship.enqueue(2)
        transaction.set_rollback(True)
    assert queue.stats().ready == 1
    assert result.status == "READY"
    run_all(queue)
    assert (tmp_path / "log").read_text() == "shipped 1\n"


def test_a_task_fails_and_waits_for_its_retry(app: reliq.Reliq, shop: Any) -> None:
    queue = app.queue("default")
    result = shop.refuse.enqueue(7)
    run_all(queue)
    (waiting,) = queue.delayed.list(failed=True)
    assert waiting.id == result.id
    assert "no such order: 7" in waiting.errors[-1].text


def test_a_task_that_is_deferred_or_has_a_priority(app: reliq.Reliq, shop: Any) -> None:
    from datetime import timedelta

    from django.utils import timezone

    shop.ship.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    assert app.queue("default").stats().delayed == 1
    shop.ship.using(priority=10).enqueue(2)
    with app.queue("default").consumer() as consumer:
        (message,) = consumer.claim()
        assert (message.priority, message.json()["args"], message.headers) == ("high", [2], {"task": "shop.ship"})


def test_wrong_settings_are_refused() -> None:
    from reliq.contrib.django import ReliqBackend

    with pytest.raises(reliq.errors.InvalidSetting, match=r"OPTIONS \['retry'\]"):
        ReliqBackend("default", {"OPTIONS": {"retry": 3}})


def test_a_message_that_names_no_task_is_a_dead_letter(app: reliq.Reliq, shop: Any) -> None:
    app.queue("default").send({"task": "os.getcwd", "args": [], "kwargs": {}, "backend": "default"})
    run_all(app.queue("default"))
    (letter,) = app.queue("default").dead.list()
    assert "os.getcwd is not a task" in letter.errors[-1].text
