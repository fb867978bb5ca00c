"""`reliq bench`: a small run on a real Redis, by the command itself."""

import json
import subprocess

import redis

from tests.support.workers import process

SMALL = ("--messages", "2000", "--samples", "20", "--kills", "1", "--time", "120")


def bench(url, *arguments):
    with process("bench", "--url", url, *arguments) as running:
        output, errors = running.communicate(timeout=150)
    return subprocess.CompletedProcess((), running.returncode, output.decode(), errors.decode())


def keys_of(url):
    with redis.Redis.from_url(url) as client:
        return {key.decode() for key in client.keys("*")}


def test_it_measures_throughput_latency_and_recovery_and_leaves_nothing_behind(url):
    done = bench(url, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["messages"] == 2000
    assert report["sent_per_second"] > 0
    assert report["consumed_per_second"] > 0
    assert 0 < report["latency_p50_ms"] <= report["latency_p99_ms"]
    assert len(report["recovery_seconds"]) == 1
    assert 0 < report["recovery_seconds"][0] < 30
    with redis.Redis.from_url(url) as client:
        assert not [key for key in keys_of(url) if "bench" in key]
        assert client.smembers("reliq:queues") == set()


def test_what_cannot_be_done_in_time_is_an_error_and_leaves_nothing_behind_either(url):
    done = bench(url, "--messages", "1000000", "--time", "1")
    assert done.returncode == 1
    assert "not done within 1 s" in done.stderr
    assert not [key for key in keys_of(url) if "bench" in key]


def test_volumes_without_bound_are_refused(url):
    done = bench(url, "--messages", "1000000000")
    assert done.returncode == 2
    assert "messages" in done.stderr
    assert keys_of(url) == set()


def test_a_redis_that_must_not_hold_a_queue_is_refused(url):
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            done = bench(url, *SMALL)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert done.returncode == 1
    assert "allkeys-lru" in done.stderr
