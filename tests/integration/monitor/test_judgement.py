"""What the doctor makes of facts, without a server."""

import pytest

from reliq.observability.doctor import Report, judge
from reliq.observability.facts import Facts
from reliq.transport.sentinel import View

GOOD_INFO = {
    "redis_version": "7.4.1", "role": "master", "connected_slaves": "1", "aof_enabled": "1",
    "aof_current_size": "1000000", "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok", "aof_delayed_fsync": "0", "latest_fork_usec": "500",
    "maxmemory": "1000000000", "used_memory": "1000000", "maxmemory_policy": "noeviction",
}  # fmt: skip
GOOD_SETTINGS = {
    "appendfsync": "everysec", "save": "", "min-replicas-to-write": "1", "no-appendfsync-on-rewrite": "no",
}  # fmt: skip


def judged(info=None, settings=None, **facts) -> Report:
    facts = {"pings": [0.0002] * 10, **facts}
    return judge(Facts({**GOOD_INFO, **(info or {})}, {**GOOD_SETTINGS, **(settings or {})}, **facts))


def found(report: Report, subject: str) -> list[tuple[str, str]]:
    return [(one.level, one.meaning) for one in report.findings if one.subject == subject]


def test_a_good_server_has_nothing_to_change_and_ends_with_0():
    report = judged()
    assert (report.level, report.ready, report.exit_status(strict=True)) == ("ok", True, 0)
    assert [one.change for one in report.findings if one.change] == []


@pytest.mark.parametrize(
    ("info", "settings", "level", "says"),
    [
        ({}, {"appendfsync": "always"}, "ok", "none"),
        ({}, {"appendfsync": "everysec"}, "ok", "the last second"),
        ({}, {"no-appendfsync-on-rewrite": "yes"}, "warning", "30 s"),
        ({}, {"appendfsync": "no"}, "warning", "30 s"),
        ({}, {"appendfsync": ""}, "warning", "CONFIG is refused"),
        ({"aof_enabled": "0"}, {"save": "3600 1 300 100"}, "warning", "3600 s"),
        ({"aof_enabled": "0"}, {"save": ""}, "warning", "before a replica takes over"),
        ({"aof_enabled": "0", "connected_slaves": "0"}, {"save": ""}, "failure", "everything"),
    ],
)
def test_the_loss_window_of_each_persistence(info, settings, level, says):
    ((found_level, meaning),) = found(judged(info, settings), "persistence")
    assert (found_level, says in meaning) == (level, True), meaning


def test_the_version_of_valkey_is_told_as_such():
    report = judged({"redis_version": "7.2.4", "valkey_version": "9.1.2"})
    (version,) = (one.fact for one in report.findings if one.subject == "version")
    assert version == "Valkey 9.1.2, compatible with Redis 7.2.4"


@pytest.mark.parametrize(
    ("info", "subject", "level"),
    [
        ({"redis_version": "6.0.9"}, "version", "failure"),
        ({"redis_version": "6.2.0"}, "version", "ok"),
        ({"redis_version": ""}, "version", "warning"),
        ({"role": "slave"}, "role", "failure"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", "failure"),
        ({"maxmemory": "0"}, "memory", "warning"),
        ({"used_memory": "850000000"}, "memory", "warning"),
        ({"used_memory": "1000000001"}, "memory", "failure"),
        ({"connected_slaves": "0"}, "replicas", "warning"),
        ({"min_slaves_good_slaves": "0"}, "replicas", "failure"),
        ({"min_slaves_good_slaves": "1"}, "replicas", "ok"),
        ({"aof_delayed_fsync": "3"}, "disk", "warning"),
        ({"latest_fork_usec": "2000000"}, "disk", "warning"),
        ({"aof_current_size": "20000000000"}, "recovery", "warning"),
    ],
)
def test_each_fact_has_its_level(info, subject, level):
    assert [one for one, _ in found(judged(info), subject)] == [level]


@pytest.mark.parametrize(("used", "level"), [("1000000", "ok"), ("850000000", "failure"), ("1000000001", "failure")])
def test_a_redis_that_evicts_never_promises_to_delete_nothing(used, level):
    ((found_level, meaning),) = found(judged({"maxmemory_policy": "allkeys-lru", "used_memory": used}), "memory")
    assert (found_level, meaning) == (level, "When it is full, it evicts by allkeys-lru.")


@pytest.mark.parametrize("name", ["aof_last_write_status", "rdb_last_bgsave_status"])
def test_a_write_to_disk_that_failed_is_a_failure(name):
    assert "failure" in [level for level, _ in found(judged({name: "err"}), "persistence")]


def test_replicas_that_need_not_be_in_touch_are_a_warning():
    assert found(judged(settings={"min-replicas-to-write": "0"}), "replicas")[0][0] == "warning"


@pytest.mark.parametrize(
    ("facts", "subject", "level"),
    [
        ({"pings": [0.05] * 10}, "latency", "warning"),
        ({"pings": [2.0] * 10}, "latency", "failure"),
        ({"pings": [0.0002] * 9 + [3.0]}, "latency", "ok"),
        ({"clock_ahead": -90.0}, "clock", "warning"),
        ({"scripts": False}, "scripts", "failure"),
        ({"client_list": False}, "connections", "warning"),
    ],
)
def test_what_was_measured_has_its_level(facts, subject, level):
    assert [one for one, _ in found(judged(**facts), subject)] == [level]


def test_a_cluster_all_of_which_stops_with_one_node_is_a_warning():
    setting = {"cluster-require-full-coverage": "yes"}
    assert found(judged({}, setting, nodes=3), "coverage")[0][0] == "warning"
    for one in (judged({}, setting), judged({}, {"cluster-require-full-coverage": "no"}, nodes=3)):
        assert found(one, "coverage") == []


def test_warnings_end_with_1_only_when_strict_and_failures_with_2():
    warned, failed = judged({"maxmemory": "0"}), judged({"role": "slave"})
    assert (warned.exit_status(), warned.exit_status(strict=True), warned.ready) == (0, 1, True)
    assert (failed.exit_status(), failed.exit_status(strict=True), failed.ready) == (2, 2, False)


def test_every_warning_and_failure_says_what_to_change():
    for report in (judge(Facts()), judged({"aof_enabled": "0", "maxmemory": "0", "connected_slaves": "0"})):
        assert [one for one in report.findings if one.level != "ok" and not one.change] == []


def test_a_jump_of_the_servers_clock_is_told():
    report = judged(clock_jump={"at": "1700000000000", "by": "-3600000"})
    (good, jump) = found(report, "clock")
    assert (good[0], jump[0]) == ("ok", "warning")
    assert any("jumped by -3600.0 s at 2023-11-14 22:13:20 UTC" in finding.fact for finding in report.findings)


A, B, C = (("10.0.0.1", 26379), ("10.0.0.2", 26379), ("10.0.0.3", 26379))
MASTER, OTHER = ("10.0.0.4", 6379), ("10.0.0.5", 6379)


@pytest.mark.parametrize(
    ("views", "facts"),
    [
        ([View(A, MASTER, 3), View(B, MASTER, 3)], []),
        (
            [View(A, MASTER, 3), View(B, None, problem="refused"), View(C, MASTER, 3)],
            [("1 of 3 name no master: 10.0.0.2:26379 (refused)", "A failover is seen through the others.")],
        ),
        (
            [View(A, MASTER, 3), View(B, None, problem="refused")],
            [
                (
                    "1 of 2 name no master: 10.0.0.2:26379 (refused)",
                    "No majority can elect a successor of the master, or confirm it: sends with replicas wait.",
                )
            ],
        ),
        (
            [View(A, MASTER, 3), View(B, OTHER, 4)],
            [
                (
                    ("they name different masters: 10.0.0.1:26379 names 10.0.0.4:6379 (epoch 3), "
                     "10.0.0.2:26379 names 10.0.0.5:6379 (epoch 4)"),
                    "reliq believes the highest epoch. After a failover this lasts a few seconds.",
                )
            ],
        ),
    ],
)  # fmt: skip
def test_sentinels_that_are_away_or_disagree_are_named(views, facts):
    findings = [one for one in judged(sentinels=views).findings if one.subject == "sentinels"]
    assert [(one.level, one.fact, one.meaning) for one in findings] == [("warning", *each) for each in facts]
