"""The page about staged jobs of Spark."""

import re

import pytest

from reliq import ops
from reliq.errors import JobClosed
from reliq.features.staging import steps as staging
from reliq.features.staging.jobs import read_jobs
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys
from reliq.observability.prometheus import Exporter
from reliq.ops.chunks import chunks_of
from reliq.transport.store import Store
from reliq_api.access import keyring
from tests.support.state import elements

KEYS = QueueKeys("orders")


@pytest.fixture
def jobs(app):
    """An open job of 3 messages, a committed one of 2, and an open one of several queues."""

    def staged(home: JobKeys, name: str, *names: str) -> staging.PartWriter:
        job = staging.Job(home, name)
        app.store.run(staging.open_job(job))
        writer = staging.PartWriter(job, "orders", "0")
        app.store.run(writer.add(chunks_of(elements(*names))))
        return writer

    writers = {
        "nightly": staged(KEYS, "nightly", "a", "b", "c"),
        "decided": staged(KEYS, "decided", "d", "e"),
        "wide": staged(SEVERAL, "wide", "f"),
    }
    decided = staging.Job(KEYS, "decided", app.store.call(ops.job_record(KEYS, "decided")).run)
    app.store.run(staging.commit(decided, [writers["decided"].part]))
    return writers


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of each row of the page's table, by the name of the job."""
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)[1:]:
        texts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        name, *cells = [re.sub(r"<[^>]+>", "", text).strip() for text in texts]
        found[name] = cells
    return found


def test_jobs_are_shown_with_their_progress_and_open_ones_can_be_aborted(app, client, jobs):
    rows = rows_of(client.get("/jobs").text)
    assert {name: cells[:4] for name, cells in rows.items()} == {
        "nightly": ["orders", "open", "3", "none"],
        "decided": ["orders", "committed", "2", "0 of 2"],
        "wide": ["several", "open", "1", "none"],
    }
    assert [cells[5] for cells in rows.values()].count("Abort") == 2
    assert abort(client, "orders", "nightly") == (303, "aborted")
    assert "nightly" not in rows_of(client.get("/jobs").text)
    with pytest.raises(JobClosed):
        app.store.run(jobs["nightly"].add(chunks_of(elements("z"))))
    assert abort(client, "", "wide") == (303, "aborted")
    assert abort(client, "orders", "decided") == abort(client, "orders", "unknown") == (303, "decided_before")
    assert abort(client, "orders", "a b")[0] == 400
    assert app.store.call(ops.command("KEYS", "*staged:nightly*")) == []
    assert "Its staged messages are deleted." in client.get("/jobs?notice=aborted").text


def abort(client, queue: str, job: str, **options) -> tuple[int, str]:
    """The status, and the notice to which the answer leads."""
    answer = client.post("/jobs/abort", data={"queue": queue, "job": job}, **options)
    return answer.status_code, answer.headers.get("location", "").partition("notice=")[2]


def test_what_is_visible_and_what_is_not_yet(app, jobs):
    def invisible() -> dict[str, int]:
        return {job.name: job.invisible for job in app.store.run(read_jobs(["orders"]))}

    assert invisible() == {"nightly": 3, "decided": 2, "wide": 1}
    decided = staging.Job(KEYS, "decided", app.store.call(ops.job_record(KEYS, "decided")).run)
    app.store.run(staging.roll_parts(decided, [jobs["decided"].part]))
    assert invisible() == {"nightly": 3, "decided": 0, "wide": 1}
    app.store.run(staging.roll_forward(decided))
    assert invisible() == {"nightly": 3, "wide": 1}


def test_a_key_sees_the_jobs_of_its_queues_and_aborts_them_with_the_right(app, client, jobs):
    def holding(scope, queue):
        identity, _, secret = app.store.run(keyring.create("k", (scope,), (queue,), None, 0.0)).partition(".")
        return {"auth": (identity, secret)}

    looking, operating, other = holding("metrics", "orders"), holding("operate", "orders"), holding("operate", "bills")
    assert client.get("/jobs").status_code == 401
    for who in (looking, operating):
        assert sorted(rows_of(client.get("/jobs", **who).text)) == ["decided", "nightly"]
    assert "nightly" not in client.get("/jobs", **other).text
    assert "Abort" not in "".join(rows_of(client.get("/jobs", **looking).text)["nightly"])
    refused = [abort(client, "orders", "nightly", **who)[0] for who in (looking, other)]
    assert [*refused, abort(client, "", "wide", **operating)[0]] == [403, 404, 403]
    assert abort(client, "orders", "nightly", **operating) == (303, "aborted")


def test_staged_messages_are_a_metric(url, jobs):
    text = Exporter(Store(url)).render()[0].decode()
    found = dict(re.findall(r"reliq_staged_messages\{(.*)\} (.*)", text))
    assert found == {
        'queue="orders",state="open"': "3.0",
        'queue="orders",state="committed"': "2.0",
        'queue="@several",state="open"': "1.0",
    }
