"""The doctor in front of real servers, and as a command."""

import asyncio
import contextlib
import json
import threading
from pathlib import Path

import pytest
import redis

from reliq import aio
from reliq.cli import main
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnavailable
from reliq.observability.doctor import examine
from reliq.transport.store import Store, unchecked_store
from tests.support.commands import give_up_soon
from tests.support.ports import free_port_with_bus
from tests.support.workers import eventually


def run(capsys, *arguments: str) -> tuple[int, str]:
    status = main.main(["doctor", *arguments])
    return status, capsys.readouterr().out


def test_the_doctor_reads_a_real_server(url, redis_server):
    report = unchecked_store(url).run(examine())
    facts = {one.subject: one.fact for one in report.findings}
    with redis.Redis(port=redis_server.port) as client:
        assert client.info("server")["redis_version"] in facts["version"]
    assert facts["persistence"] == "append-only file, fsync everysec"
    assert (facts["replicas"], facts["scripts"]) == ("none", "allowed")
    assert report.ready


def test_sync_and_asyncio_examine_alike(url):
    async def examined():
        store = aio.Reliq(url).store
        try:
            return await store.run(examine())
        finally:
            await store.close()

    async_report, report = asyncio.run(examined()), Store(url).run(examine())
    assert [one.subject for one in async_report.findings] == [one.subject for one in report.findings]


def test_the_command_prints_findings_and_ends_with_its_status(url, capsys):
    status, text = run(capsys, "--url", url)
    assert status == 0
    assert "append-only file, fsync everysec" in text
    assert "-> CONFIG SET maxmemory" in text
    assert run(capsys, "--url", url, "--strict")[0] == 1


def test_json_has_every_finding(url, capsys):
    _, text = run(capsys, "--url", url, "--json")
    report = json.loads(text)
    assert report["level"] == "warning"
    assert {"level", "subject", "fact", "meaning", "change"} == set(report["findings"][0])


def test_nobody_there_is_a_failure(capsys, monkeypatch):
    give_up_soon(monkeypatch)
    status, text = run(capsys, "--url", "redis://127.0.0.1:1/0", "--json")
    assert (status, json.loads(text)["findings"][0]["subject"]) == (2, "connection")


def test_a_user_without_rights_is_told_which_one_is_missing(url, redis_server, capsys):
    with redis.Redis(port=redis_server.port) as client:
        client.execute_command("ACL", "SETUSER", "nobody", "on", ">secret", "~*", "-@all")
        try:
            status, text = run(capsys, "--url", url.replace("//", "//nobody:secret@"), "--json")
        finally:
            client.execute_command("ACL", "DELUSER", "nobody")
    (finding,) = json.loads(text)["findings"]
    assert (status, "give it the permission +time" in finding["fact"]) == (2, True)
    assert "Start Redis" not in finding["change"]


def test_an_evicting_server_without_persistence_and_its_replica_are_failures(capsys):
    with EmbeddedRedis(settings=["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]) as server:
        status, text = run(capsys, "--url", server.url, "--json")
        failed = {one["subject"] for one in json.loads(text)["findings"] if one["level"] == "failure"}
        assert (status, failed) == (2, {"eviction", "persistence"})
        with redis.Redis(port=server.port) as client:
            client.replicaof("127.0.0.1", 1)
        status, text = run(capsys, "--url", server.url, "--json")
        assert "role" in {one["subject"] for one in json.loads(text)["findings"] if one["level"] == "failure"}


@pytest.mark.parametrize(
    ("refused", "subject", "says"),
    [
        ("-info", "version", "the server does not say"),
        ("-config", "persistence", "append-only file, fsync not known"),
        ("-client|list", "connections", "CLIENT LIST is refused"),
        ("-eval", "scripts", "refused"),
    ],
)
def test_what_a_user_may_not_ask_is_reported_and_the_rest_still_read(url, redis_server, refused, subject, says):
    with redis.Redis(port=redis_server.port) as client:
        client.execute_command("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "+@all", refused)
        try:
            report = unchecked_store(url.replace("//", "//narrow:secret@")).run(examine())
        finally:
            client.execute_command("ACL", "DELUSER", "narrow")
    assert says in [one.fact for one in report.findings if one.subject == subject]
    assert "latency" in {one.subject for one in report.findings}


def test_a_disabled_command_is_as_good_as_refused():
    with EmbeddedRedis(settings=["--rename-command", "CONFIG", ""]) as server:
        report = unchecked_store(server.url).run(examine())
    assert [one.level for one in report.findings if one.subject == "persistence"] == ["warning"]


def test_a_node_of_a_cluster_is_no_server_for_queues(capsys):
    """Although it may have all slots, and answers all that the doctor asks."""
    with EmbeddedRedis(settings=["--cluster-enabled", "yes"], port=free_port_with_bus()) as server:
        with redis.Redis(port=server.port) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            eventually(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
        status, text = run(capsys, "--url", server.url, "--json")
    (finding,) = json.loads(text)["findings"]
    assert (status, finding["subject"]) == (2, "connection")
    assert "is a node of a Redis Cluster: use redis+cluster://" in finding["fact"]


def test_a_server_that_misses_its_replicas_is_a_failure(url, redis_server):
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("min-replicas-to-write", "1")
        try:
            report = unchecked_store(url).run(examine())
        finally:
            client.config_set("min-replicas-to-write", "0")
    assert [one.level for one in report.findings if one.subject == "replicas"] == ["failure"]


def fails_to_save(client):
    """As with a full disk, it refuses writes then, and PING."""
    file = client.config_get("dbfilename")["dbfilename"]
    Path(client.config_get("dir")["dir"], file).mkdir()
    client.config_set("save", "3600 1")
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def loses_its_master(client):
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("breaks", "refusal", "finding"),
    [
        (fails_to_save, "it cannot write to its disk", ("persistence", "the last write of the snapshot failed")),
        (loses_its_master, "its master is away", ("role", "slave")),
    ],
)
def test_a_server_that_refuses_calls_for_now_is_examined_as_far_as_it_answers(
    capsys, monkeypatch, breaks, refusal, finding
):
    give_up_soon(monkeypatch)
    with EmbeddedRedis() as server:
        with redis.Redis(port=server.port) as client:
            breaks(client)
        status, text = run(capsys, "--url", server.url, "--json")
    failed = {one["subject"]: one for one in json.loads(text)["findings"] if one["level"] == "failure"}
    assert (status, refusal in failed["connection"]["fact"]) == (2, True)
    assert "Start Redis" not in failed["connection"]["change"]
    subject, fact = finding
    assert failed[subject]["fact"] == fact
    assert not {"scripts", "latency"}.intersection(one["subject"] for one in json.loads(text)["findings"])


def test_what_refuses_even_to_tell_of_itself_is_not_said_to_be_stopped(capsys, monkeypatch):
    give_up_soon(monkeypatch)
    with EmbeddedRedis(settings=["--lua-time-limit", "1"]) as server, redis.Redis(port=server.port) as client:
        loop = threading.Thread(target=refuses, args=(client, "EVAL", "while true do end", 0))
        loop.start()
        with redis.Redis(port=server.port) as other:
            eventually(lambda: refuses(other, "PING"))
            status, text = run(capsys, "--url", server.url, "--json")
            other.script_kill()
        loop.join()
    (found,) = json.loads(text)["findings"]
    assert (status, "a script of another client" in found["fact"], "Start Redis" in found["change"]) == (2, True, False)


def refuses(client, *command) -> bool:
    with contextlib.suppress(redis.RedisError):
        client.execute_command(*command)
        return False
    return True


def test_a_server_that_is_away_raises_redis_unavailable():
    with pytest.raises(RedisUnavailable):
        unchecked_store("redis://127.0.0.1:1/0").run(examine(), timeout=0)
