"""The output of messages, by whole states."""

import re

import pytest

from reliq import ops
from reliq.errors import QueueFull
from reliq.features.output import ops as own
from reliq.features.output.steps import CARRIED
from reliq.model.keys import QueueKeys
from reliq.ops import Destination, Move, Revival
from reliq.ops.coming import Coming
from tests.support.state import KEYS, World, element, hold
from tests.support.workers import eventually

OTHER = QueueKeys("other")
DAY = 86_400_000


def emit(world: World, name: str, token: str, chunk: bytes = b"j1") -> str:
    said: str = world.run(own.emit(hold(name), token, chunk))
    return said


def read(world: World, name: str, keys: QueueKeys = KEYS) -> tuple[str, list[object]]:
    """What a reader gets: the state of the message, and its chunks."""
    emitted = world.run(own.emitted(keys, name, "", 100))
    return emitted.head.rpartition(" ")[2], [one.value for one in emitted.chunks]


def notes(world: World) -> dict[bytes, bytes]:
    """What the queue has of output beside the streams; config counts the heads."""
    found: dict[bytes, bytes] = world.redis.hgetall(KEYS.followed)
    heads = [field for field in found if field.count(b"\t") == 1 and len(field) > 1]
    assert int(world.redis.hget(KEYS.config, "emitted") or 0) == len(heads)
    return found


def move(name: str, destination: Destination, again: str) -> ops.Op:
    """Settle a message otherwise than by an ack."""
    return ops.settle(KEYS, "w", 15.0, [], [Move(element(name), destination, "x", name[:1], element(again))])


def test_chunks_are_appended_in_order_and_live_for_a_day(held: World):
    assert [emit(held, "a", "1"), emit(held, "a", "2", b"b\xff")] == ["ok", "ok"]
    assert read(held, "a") == ("open", [1, b"\xff"])
    assert [*notes(held)] == [b"\ta"]
    assert re.fullmatch(rb"2 4 1 1 2 \d{13}/86400000 open", notes(held)[b"\ta"])
    for key in (KEYS.output("a"), KEYS.outputs):
        assert DAY < held.redis.pttl(key) <= 1.02 * DAY
    beside = {KEYS.output("a"), KEYS.outputs, KEYS.followed, KEYS.config}
    held.redis.delete(*beside)
    assert held.state() == {"processing:w": "b a", "consumers": {"w"}, "lease:w": "alive"}


def test_a_repeated_call_appends_once(held: World):
    assert [emit(held, "a", "1"), emit(held, "a", "1")] == ["ok", "ok"]
    assert read(held, "a") == ("open", [1])


def test_output_is_kept_as_long_as_the_queue_says(held: World):
    held.redis.hset(KEYS.config, "keep_output", "60.0")
    emit(held, "a", "1")
    assert 60_000 < held.redis.pttl(KEYS.output("a")) <= 61_200
    for key in (KEYS.output("a"), KEYS.outputs):
        held.redis.pexpire(key, 30_000)
    emit(held, "a", "2")  # shortly after: its time is not set at each chunk
    assert held.redis.pttl(KEYS.output("a")) <= 30_000
    passes(held, "a", 1300)  # more than a fiftieth of that
    emit(held, "a", "3")
    for key in (KEYS.output("a"), KEYS.outputs):
        assert 60_000 < held.redis.pttl(key) <= 61_200


def passes(world: World, name: str, ms: int, known: bool = True) -> None:
    """Let time pass for the head of a message. `known`: it has for how long the stream lives; else as before that."""
    head = notes(world)[f"\t{name}".encode()].split(b" ")
    at, slash, kept = head[5].partition(b"/")
    head[5] = b"%d" % (int(at) - ms) + (slash + kept if known else b"")
    world.redis.hset(KEYS.followed, f"\t{name}", b" ".join(head))


@pytest.mark.parametrize("version", ["this", "before"])
def test_output_that_is_kept_longer_from_now_on_has_an_end_though_its_stream_had_expired(held: World, version: str):
    held.redis.hset(KEYS.config, "keep_output", "1.0")
    emit(held, "a", "1")
    held.redis.unlink(KEYS.output("a"), KEYS.outputs)
    passes(held, "a", 1300, known=version == "this")
    held.redis.hset(KEYS.config, "keep_output", "86400.0")
    emit(held, "a", "2")
    for key in (KEYS.output("a"), KEYS.outputs):
        assert DAY < held.redis.pttl(key) <= 1.02 * DAY


def test_only_the_holder_of_a_message_emits(held: World):
    assert emit(held, "z", "1") == "lost"
    assert emit(held, "a2", "1") == "lost"  # another push of the same message
    held.redis.delete(KEYS.lease("w"))
    assert emit(held, "a", "1") == "lost"
    assert held.state() == {"processing:w": "b a", "consumers": {"w"}}


def test_a_message_emits_so_many_chunks_and_bytes(held: World, monkeypatch):
    monkeypatch.setattr(own, "MAX_CHUNKS", 2)
    assert [emit(held, "a", "1"), emit(held, "a", "2"), emit(held, "a", "3")] == ["ok", "ok", "full"]
    monkeypatch.setattr(own, "MAX_OUTPUT_BYTES", 5)
    assert [emit(held, "b", "1", b"j12"), emit(held, "b", "2", b"j12"), emit(held, "b", "3", b"j1")] == [
        "ok",
        "full",
        "ok",
    ]
    assert read(held, "b") == ("open", [12, 1])


def test_the_run_after_a_retry_has_a_number_of_its_own(held: World):
    emit(held, "a", "1")
    held.run(move("a", Destination.TAIL, "a2"))
    held.run(ops.claim(KEYS, "w", 15.0, 1))
    emit(held, "a2", "2")
    emit(held, "a2", "3")
    assert [one.run for one in held.run(own.emitted(KEYS, "a", "", 10)).chunks] == [1, 2, 2]


def test_the_output_of_a_handled_message_stays_and_nothing_else(held: World):
    emit(held, "a", "1")
    held.run(ops.settle(KEYS, "w", 15.0, [element("a"), element("b")]))
    assert read(held, "a") == ("", [1])
    assert notes(held) == {}
    assert held.run(own.gone_outputs(KEYS, 10)) == (0, [])


def test_an_ack_in_a_row_ends_the_output_too(held: World):
    emit(held, "a", "1")
    claimant_row = ops.settle(KEYS, "w", 15.0, [element("a"), element("b")], row=2)
    assert held.run(claimant_row).codes == "dd"
    assert notes(held) == {}


def test_a_dead_letter_keeps_its_output_until_it_is_deleted(held: World):
    emit(held, "a", "1")
    held.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(element("a"), Destination.DEAD, "dead:rejected", "a", element("a2"))])
    )
    assert read(held, "a") == ("dead", [1])
    held.run(ops.redrive(KEYS, [Revival(element("a2"), "a", element("a3"))]))
    assert read(held, "a") == ("open", [1])
    held.run(ops.claim(KEYS, "w", 15.0, 1))
    held.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(element("a3"), Destination.DEAD, "dead:rejected", "a", element("a4"))])
    )
    held.run(ops.discard(KEYS, [(element("a4"), "a", b"")], "purged_dead"))
    up_to, (gone,) = held.run(own.gone_outputs(KEYS, 10))
    assert (up_to, gone.id) == (1, "a")
    assert notes(held) == {b"\t": b"1", b"\t\t": b"0", b"\t\t1": f"a {gone.left_at}".encode()}


def purged(world: World, *names: str) -> None:
    """Let these messages be purged after they have emitted something."""
    for name in names:
        world.given(processing={"w": name}, leases={"w": 30_000})
        assert emit(world, name, "1") == "ok"
        world.run(
            ops.settle(KEYS, "w", 15.0, [], [Move(element(name), Destination.HEAD, "released", name, element(name))])
        )
    world.run(ops.purge(KEYS, 100))


def test_the_output_of_purged_messages_is_found_and_deleted_by_parts(world: World):
    purged(world, "a", "b", "c")
    assert world.redis.hget(KEYS.config, "emitted") is None
    found = world.run(own.gone_outputs(KEYS, 2))
    assert found[0] == 2
    assert len(found[1]) == 2
    assert [world.run(own.drop_outputs(KEYS, *found)) for _ in range(2)] == [2, 0]
    rest = world.run(own.gone_outputs(KEYS, 2))
    assert (rest[0], {one.id for one in (*found[1], *rest[1])}) == (3, {"a", "b", "c"})
    assert world.run(own.drop_outputs(KEYS, *rest)) == 1
    assert notes(world) == {}
    assert world.redis.keys("*:output:*") == []


def test_the_output_of_another_message_with_the_same_id_is_not_deleted(world: World):
    purged(world, "a")
    found = world.run(own.gone_outputs(KEYS, 2))
    world.given(processing={"w": "a"}, leases={"w": 30_000})
    emit(world, "a", "2", b"j2")
    assert world.run(own.drop_outputs(KEYS, *found)) == 0
    assert read(world, "a") == ("open", [2])


def test_the_output_of_another_message_with_the_same_id_stays_also_once_that_is_handled(world: World):
    purged(world, "a")
    found = world.run(own.gone_outputs(KEYS, 2))
    eventually(lambda: world.run(ops.server_time()) > int(found[1][0].left_at))
    world.given(processing={"w": "a"}, leases={"w": 30_000})
    emit(world, "a", "2", b"j2")
    world.run(ops.settle(KEYS, "w", 15.0, [element("a")]))
    assert world.run(own.drop_outputs(KEYS, *found)) == 0
    assert read(world, "a") == ("", [2])


def test_no_call_of_a_handler_appends_twice_however_late_or_early_it_comes(held: World):
    numbers = (1, 2, 1, 5, 2, 3, 5, 3, 4, 4)
    assert {emit(held, "a", f"#ab.{number}", b"j%d" % number) for number in numbers} == {"ok"}
    assert read(held, "a")[1] == [1, 2, 5, 3, 4]
    assert b" #ab.5, " in notes(held)[b"\ta"]
    assert emit(held, "a", "#cd.1", b"j6") == "ok"
    assert read(held, "a")[1] == [1, 2, 5, 3, 4, 6]
    assert emit(held, "a", "#cd.2000", b"j7") == "ok"
    assert len(notes(held)[b"\ta"]) < 1100


def test_output_goes_to_another_partition_once(held: World):
    for number in range(250):
        emit(held, "a", f"{number}", b"j%d" % number)
    coming = [Coming(one, OTHER.dedup(one)) for one in "ab"]
    for _ in range(2):  # an interrupted move is repeated
        held.store.run(CARRIED.take(KEYS, OTHER, coming))
    held.redis.set(OTHER.dedup("a"), "the message has entered")
    emit(held, "a", "another")
    held.store.run(CARRIED.take(KEYS, OTHER, coming))
    assert read(held, "a", OTHER)[1] == list(range(100))
    assert held.redis.xlen(OTHER.output("a")) == 250
    assert held.redis.hget(OTHER.followed, b"\ta").startswith(b"250 ")
    assert held.redis.hget(OTHER.config, "emitted") == b"1"
    assert held.redis.xrange(OTHER.output("a")) == held.redis.xrange(KEYS.output("a"), count=250)


def test_a_full_redis_takes_no_chunk(held: World):
    held.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull):
            emit(held, "a", "1")
    finally:
        held.redis.config_set("maxmemory", 0)
    assert notes(held) == {}


def test_a_slow_monitor_forgets_only_what_it_has_found(world: World):
    """Numbers never begin again: else what has been noted since, under the same number, would be forgotten."""
    purged(world, "a")
    slow = world.run(own.gone_outputs(KEYS, 2))
    assert world.run(own.drop_outputs(KEYS, *slow)) == 1
    purged(world, "b")
    assert world.run(own.drop_outputs(KEYS, *slow)) == 0
    rest = world.run(own.gone_outputs(KEYS, 2))
    assert [one.id for one in rest[1]] == ["b"]
    assert world.run(own.drop_outputs(KEYS, *rest)) == 1
    assert notes(world) == {}
