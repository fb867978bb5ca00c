"""The ACL of each role, as deploy/users.acl has it: enough for all of its work, and for nothing else."""

import argparse
import asyncio
import contextlib
import re
import sys

import pytest
import redis

import reliq
from reliq import RedisUnsuitable, aio
from reliq.cli.options import store_of
from reliq.embedded import EmbeddedRedis
from reliq.ops.script import Script
from tests.integration.security.roles import WORK
from tests.support.scripts import scripts
from tests.support.workers import ROOT

ACL = (ROOT / "deploy" / "users.acl").read_text().replace("PASSWORD", "pw")
USERS = {line.split()[1]: line.split()[1:] for line in ACL.splitlines()}
#: The scripts that a role's calls may run; `tests/integration/security/roles.py` runs most of them.
SCRIPTS = {
    "producer": "push arrive enqueue publish prepare decide announce cycle_add cycle_remove "
    "flow_open flow_change flow_wait flow_note flow_drop",
    "worker": "register heartbeat mark_tried claim settle forget decide announce bind report "
    "record recorded park sleep emit charge claim_limited lead tally flow_hold",
    "monitor": "set_policy exchange_policy end_change replace_layout drop_counters "
    "promote due existing reclaim_when_full discard ask advance_within forget stats "
    "announce commit_roll stage_abort stage_clear unstage browse return_due unpark_due "
    "leave_record put_record put_notes put_output emitted gone_outputs drop_outputs tally "
    "flow_news flow_told flow_tell flow_bury flow_ended flow_change flow_drop flow_note flow_opened",
    "operator": "set_policy exchange_policy end_change replace_layout drop_counters "
    "announce bind cancel purge redrive discard stats existing cycle_remove browse find sweep tell decide "
    "upcoming forget_tracked hasten search starts instruct purge_received signal recorded remove_parked emitted "
    "flow_change flow_drop",
    "api": "set_policy exchange_policy end_change replace_layout drop_counters "
    "push arrive enqueue publish announce register heartbeat claim settle forget bind cancel purge redrive "
    "discard stats existing allow browse find upcoming sweep tell report decide forget_tracked hasten "
    "search starts instruct purge_received record recorded park sleep signal remove_parked claim_limited "
    "lead tally charge emit emitted flow_open flow_change flow_wait flow_note flow_drop flow_hold flow_opened "
    "flow_ended",
    "sqs": "set_policy exchange_policy end_change replace_layout drop_counters "
    "push arrive enqueue announce register heartbeat claim settle forget purge discard stats receive "
    "claim_limited lead tally receive_again return_due set_visibility delete_received purge_received",
}
FORBIDDEN = (
    "FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG SET maxmemory 1", "CONFIG REWRITE", "SHUTDOWN", "ACL LIST",
    "SCRIPT FLUSH", "REPLICAOF NO ONE", "MONITOR", "SAVE", "SORT reliq:x", "GET other", "SET other 1",
    "DEL other", "SUBSCRIBE a", "PUBLISH a b", "CLIENT PAUSE 1",
)  # fmt: skip


@pytest.fixture
def server():
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client:
        for arguments in USERS.values():
            client.execute_command("ACL SETUSER", *arguments)
            with contextlib.suppress(redis.ResponseError):  # what Redis 7.2 brought, as the page says
                client.execute_command("ACL SETUSER", arguments[0], "+client|setinfo", "+waitaof")
        yield server


def url_of(server, role):
    return server.url.replace("//", f"//{role}:pw@")


def test_the_file_and_the_page_have_every_role():
    assert set(USERS) == set(WORK)
    page = (ROOT / "docs" / "operations" / "security.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)) >= set(WORK)


def test_redis_loads_the_file(tmp_path):
    (tmp_path / "users.acl").write_text(ACL)
    settings = ["--aclfile", str(tmp_path / "users.acl")]
    with EmbeddedRedis(settings=settings) as server, redis.Redis(port=server.port) as client:
        assert {line.split()[1] for line in client.acl_list()} == {"default", *USERS}


@pytest.mark.parametrize("role", WORK)
def test_a_role_does_all_of_its_work_and_nothing_is_refused(server, role):
    admin = reliq.Reliq(server.url)
    try:
        WORK[role](url_of(server, role), admin)
    finally:
        admin.close()
    with redis.Redis(port=server.port) as client:
        refused = [f"{entry['reason']} {entry['object']}" for entry in client.acl_log()]
    assert refused == []


@pytest.mark.parametrize("role", WORK)
def test_the_commands_of_a_role_begin(server, role, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # there they ask at once whether Redis answers
    for waits in (False, True):
        store_of(argparse.Namespace(url=url_of(server, role)), waits=waits).close()


@pytest.mark.parametrize("role", WORK)
def test_the_rights_cover_each_command_of_each_script_that_the_role_may_run(role):
    full_names = {path.stem: name for name, path in scripts().items()}
    for name in SCRIPTS[role].split():
        needed = set(re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", Script(full_names[name]).source))
        allowed = {right[1:].partition("|")[0].upper() for right in USERS[role] if right.startswith("+")}
        assert needed - allowed == set(), f"{name}: add these to the user {role} of deploy/users.acl"


@pytest.mark.parametrize("role", WORK)
def test_what_is_outside_of_a_role_is_refused(server, role):
    with redis.Redis(port=server.port, username=role, password="pw") as client:
        for command in FORBIDDEN:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("producer", "BLMOVE reliq:{q}:messages reliq:{q}:x RIGHT LEFT 1"),
        ("producer", "LINDEX reliq:{q}:messages 0"),
        ("producer", "RPOP reliq:{q}:messages"),
        ("producer", "CLIENT LIST"),
        ("worker", "CLIENT LIST"),
        ("worker", "SCAN 0"),
        ("worker", "WAIT 1 1"),
        ("monitor", "BLMOVE reliq:{q}:messages reliq:{q}:x RIGHT LEFT 1"),
        ("monitor", "RPOP reliq:{q}:messages"),
        ("monitor", "CONFIG GET maxmemory"),
        ("operator", "CLIENT KILL ID 1"),
        ("operator", "BLMOVE reliq:{q}:messages reliq:{q}:x RIGHT LEFT 1"),
        ("api", "CONFIG SET appendonly no"),
    ],
)
def test_a_role_cannot_do_the_work_of_another(server, role, command):
    with (
        redis.Redis(port=server.port, username=role, password="pw") as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command.split())


def send(url):
    with reliq.Reliq(url) as app:
        app.queue("orders").send(1)


async def send_async(url):
    async with aio.Reliq(url) as app:
        await app.queue("orders").send(1)


@pytest.mark.parametrize("face", [send, lambda url: asyncio.run(send_async(url))], ids=["sync", "asyncio"])
def test_a_user_who_may_not_load_scripts_is_told_so(server, face):
    with redis.Redis(port=server.port) as client:
        client.execute_command("ACL SETUSER", "worker", "-script")
    with pytest.raises(RedisUnsuitable, match=r"may not run SCRIPT( LOAD)?: give it the permission \+script"):
        face(url_of(server, "worker"))
