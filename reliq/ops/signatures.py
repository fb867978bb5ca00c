"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def advance_within(keys: NamedKeys, *, element: Argument, counter: Argument, dead: bool) -> Call:
    return "advance_within", (*keys.places,), (element, counter, int(dead))


def allow(*, allowance: str, rate: float, wanted: float) -> Call:
    return "allow", (allowance,), (rate, wanted)


def announce(*, queues: str, queue: Argument) -> Call:
    return "announce", (queues,), (queue,)


def arrive(
    keys: NamedKeys, *, bodies: Iterable[str], producer: Argument, sequence: float, references: Iterable[Argument],
) -> Call:
    return "arrive", (keys.producers, *bodies), (producer, sequence, *references)


def attend(*, monitors_until: str, monitors_since: str, monitor: Argument, lasts: Argument, most: float) -> Call:
    return "attend", (monitors_until, monitors_since), (monitor, lasts, most)


def breaker(
    keys: NamedKeys, *, passed: float, failed: float, probe: Argument, threshold: float, fewest: float, window: float,
    open_for: float,
) -> Call:
    return (
        "breaker",
        (keys.config, keys.flow, keys.counters),
        (passed, failed, probe, threshold, fewest, window, open_for),
    )


def browse(
    *, zset: str, order: Argument, low: Argument, high: Argument, skip: float, limit: float, shown: float,
    most_bytes: float,
) -> Call:
    return "browse", (zset,), (order, low, high, skip, limit, shown, most_bytes)


def cancel(keys: NamedKeys, *, id: Argument, call: str | None = None) -> Call:
    return "cancel", (*keys.places, keys.delayed, keys.index, *(() if call is None else (call,))), (id,)


def claim(
    keys: NamedKeys, *, processing: str, lease: str, lease_ms: Argument, limit: float, room: float,
    consumer: Argument, held: Argument | None = None,
) -> Call:
    return (
        "claim",
        (*keys.places, processing, lease, keys.consumers),
        (lease_ms, limit, room, consumer, *(() if held is None else (held,))),
    )


def claim_limited(
    keys: NamedKeys, *, processing: str, lease: str, lease_ms: Argument, limit: float, room: float,
    consumer: Argument, reports: bool, suspect_list: str | None = None, suspect: Argument | None = None,
) -> Call:
    return (
        "claim_limited",
        (*keys.places, processing, lease, keys.consumers, keys.flow, *keys.slots, keys.delayed, keys.index,
        keys.buckets, *(() if suspect_list is None else (suspect_list,))),
        (lease_ms, limit, room, consumer, int(reports), *(() if suspect is None else (suspect,))),
    )


def describe(keys: NamedKeys, *, consumer: Argument, about: Argument) -> Call:
    return "describe", (keys.workers,), (consumer, about)


def discard(keys: NamedKeys, *, counter: Argument, letters: Records, call: str | None = None) -> Call:
    return (
        "discard",
        (keys.dead, keys.counters, keys.index, keys.bodies, keys.followed, keys.config, keys.history,
        *(() if call is None else (call,))),
        (counter, *flat(letters)),
    )


def discard_letter(*, element: Argument, id: Argument, reference: Argument) -> Record:
    return (element, id, reference)


def drop_counters(keys: NamedKeys, *, counts: Records) -> Call:
    return "drop_counters", (keys.config, keys.counters, keys.flow), (*flat(counts),)


def drop_counters_count(*, name: Argument, value: Argument) -> Record:
    return (name, value)


def due(*, delayed: Iterable[str], ahead: Argument) -> Call:
    return "due", (*delayed,), (ahead,)


def end_change(keys: NamedKeys, *, field: Argument, token: Argument) -> Call:
    return "end_change", (keys.config,), (field, token)


def enqueue(
    keys: NamedKeys, *, dedup_keys: Iterable[str], producer: Argument, sequence: float, plain_and_version: Argument,
    batches: Argument, elements: Iterable[Argument], options: Records,
) -> Call:
    return (
        "enqueue",
        (*keys.places, keys.delayed, keys.index, keys.producers, *dedup_keys),
        (producer, sequence, plain_and_version, batches, *elements, *flat(options)),
    )


def enqueue_option(*, id: Argument, element: Argument, delay: Argument, window: Argument, digest: Argument) -> Record:
    return (id, element, delay, window, digest)


def exchange_policy(keys: NamedKeys, *, version: Argument, known: float, fields: Iterable[Argument]) -> Call:
    return "exchange_policy", (keys.config, keys.holders, *keys.rates), (version, known, *fields)


def existing(*, names: Iterable[str]) -> Call:
    return "existing", (*names,), ()


def find(keys: NamedKeys, *, zset: str, id: Argument, skip: float, shown: float, most_bytes: float) -> Call:
    return "find", (zset, keys.index), (id, skip, shown, most_bytes)


def forget(
    keys: NamedKeys, *, processing: str, lease: str, consumer: Argument, leaving: bool, remembered: Argument,
    settled: str | None = None,
) -> Call:
    return (
        "forget",
        (keys.consumers, processing, lease, keys.trying, keys.workers, *(() if settled is None else (settled,))),
        (consumer, int(leaving), remembered),
    )


def hasten(keys: NamedKeys, *, ids: Iterable[Argument]) -> Call:
    return "hasten", (keys.delayed, keys.index), (*ids,)


def heartbeat(*, lease: str, lease_ms: Argument) -> Call:
    return "heartbeat", (lease,), (lease_ms,)


def held_keys(keys: NamedKeys, *, cursor: Argument) -> Call:
    return "held_keys", (keys.active, keys.config), (cursor,)


def hold(keys: NamedKeys, *, held_ms: Argument) -> Call:
    return "hold", (keys.config, keys.flow), (held_ms,)


def hold_key(keys: NamedKeys, *, group: Argument, held_ms: Argument) -> Call:
    return "hold_key", (keys.config, keys.buckets), (group, held_ms)


def instruct(
    keys: NamedKeys, *, consumer: Argument, field: Argument, at: Argument, kept: Argument, anyway: bool,
) -> Call:
    return "instruct", (keys.told, keys.consumers), (consumer, field, at, kept, int(anyway))


def lead(keys: NamedKeys, *, consumer: Argument, wait_ms: Argument) -> Call:
    return "lead", (keys.flow,), (consumer, wait_ms)


def mark_tried(keys: NamedKeys, *, consumer: Argument, mark: Argument) -> Call:
    return "mark_tried", (keys.trying,), (consumer, mark)


def newest(keys: NamedKeys, *, processing: str, groups: Iterable[Argument]) -> Call:
    return "newest", (*keys.places, processing, keys.flow), (*groups,)


def promote(keys: NamedKeys, *, limit: Argument) -> Call:
    return "promote", (*keys.places, keys.delayed, keys.index), (limit,)


def purge(keys: NamedKeys, *, limit: float, call: str | None = None) -> Call:
    return "purge", (*keys.places, keys.delayed, keys.index, *(() if call is None else (call,))), (limit,)


def push(
    keys: NamedKeys, *, producer: Argument, sequence: float, entry: Argument, elements: Iterable[Argument],
    bodies: str | None = None,
) -> Call:
    return (
        "push",
        (keys.messages, keys.counters, keys.config, keys.producers, *(() if bodies is None else (bodies,))),
        (producer, sequence, entry, *elements),
    )


def push_keyed(
    keys: NamedKeys, *, dedup_keys: Iterable[str], producer: Argument, sequence: float, entry: Argument,
    ordered: bool, count: float, elements: Iterable[Argument], contents: Records,
) -> Call:
    return (
        "push_keyed",
        (keys.messages, keys.waiting, keys.active, keys.counters, keys.config, keys.producers, keys.bodies,
        *dedup_keys),
        (producer, sequence, entry, int(ordered), count, *elements, *flat(contents)),
    )


def push_keyed_content(*, window: Argument, digest: Argument) -> Record:
    return (window, digest)


def put_notes(
    keys: NamedKeys, *, report: str, brought: str, id: Argument, cancelled: Argument, kept: Argument,
    told_kept: Argument, fields: Iterable[Argument],
) -> Call:
    return "put_notes", (report, keys.told, brought), (id, cancelled, kept, told_kept, *fields)


def reclaim_when_full(keys: NamedKeys, *, processing: str, lease: str, deadline: Argument, messages: Records) -> Call:
    return (
        "reclaim_when_full",
        (*keys.places, processing, lease, keys.dead, keys.index, *keys.slots),
        (deadline, *flat(messages)),
    )


def reclaim_when_full_message(
    *, element: Argument, destination: Argument, counter: Argument, id: Argument, again: Argument,
) -> Record:
    return (element, destination, counter, id, again)


def redrive(keys: NamedKeys, *, letters: Records, call: str | None = None) -> Call:
    return "redrive", (*keys.places, keys.dead, keys.index, *(() if call is None else (call,))), (*flat(letters),)


def redrive_letter(*, element: Argument, id: Argument, member: Argument, again: Argument) -> Record:
    return (element, id, member, again)


def register(
    keys: NamedKeys, *, lease: str, consumer: Argument, lease_ms: Argument, marks: bool, about: Argument | None = None,
) -> Call:
    return (
        "register",
        (keys.consumers, lease, keys.trying, keys.workers),
        (consumer, lease_ms, int(marks), *(() if about is None else (about,))),
    )


def release_lines(keys: NamedKeys, *, version: float, groups: Iterable[Argument]) -> Call:
    return "release_lines", (*keys.places,), (version, *groups)


def replace_layout(
    keys: NamedKeys, *, before: Argument, after: Argument, alone: bool, counts: Iterable[Argument],
) -> Call:
    return "replace_layout", (keys.config, keys.counters), (before, after, int(alone), *counts)


def report(
    *, lease: str, report: str, processing: str, tag: Argument, sent: Argument, kept: Argument, name: Argument,
    place: Argument, fields: Iterable[Argument],
) -> Call:
    return "report", (lease, report, processing), (tag, sent, kept, name, place, *fields)


def send_home(keys: NamedKeys, *, members: Iterable[Argument]) -> Call:
    return "send_home", (*keys.places,), (*members,)


def serve(keys: NamedKeys, *, owner: Argument, silent: float) -> Call:
    return "serve", (keys.servers, keys.config), (owner, silent)


def set_policy(keys: NamedKeys, *, version: Argument, fields: Iterable[Argument]) -> Call:
    return "set_policy", (keys.config, *keys.rates), (version, *fields)


def settle(
    keys: NamedKeys, *, processing: str, lease: str, marks: Iterable[str], lease_ms: Argument, limit: float,
    room: float, row: float, first_name: Argument, last_name: Argument, row_uncounted: float, ack_count: float,
    uncounted: Argument, not_started: Argument, results_ms: float, row_batches: Argument, acks: Records,
    moves: Records, results: Records, rates: Sequence[str] = (), outcomes: Sequence[str] = (),
) -> Call:
    return (
        "settle",
        (*keys.places, processing, lease, keys.delayed, keys.dead, keys.index, keys.told, *keys.slots, *marks, *rates,
        *outcomes),
        (lease_ms, limit, room, row, first_name, last_name, row_uncounted, ack_count, uncounted, not_started,
        results_ms, row_batches, *flat(acks), *flat(moves), *flat(results)),
    )


def settle_ack(*, name: Argument, size: Argument, place: Argument) -> Record:
    return (name, size, place)


def settle_move(
    *, name: Argument, size: Argument, place: Argument, destination: Argument, counter: Argument, id: Argument,
    again: Argument, delay: Argument, mark_ms: Argument, sent: Argument,
) -> Record:
    return (name, size, place, destination, counter, id, again, delay, mark_ms, sent)


def settle_result(*, result_id: Argument, result: Argument) -> Record:
    return (result_id, result)


def starts(keys: NamedKeys, *, shown: float, references: Iterable[Argument]) -> Call:
    return "starts", (keys.bodies,), (shown, *references)


def stats(keys: NamedKeys, *, lists: Iterable[str]) -> Call:
    return (
        "stats",
        (*keys.places, keys.delayed, keys.dead, keys.prepared, keys.flow, keys.ticks, keys.consumers, keys.received,
        keys.parked, *lists),
        (),
    )


def stay(keys: NamedKeys, *, version: float, members: Iterable[Argument]) -> Call:
    return "stay", (*keys.places,), (version, *members)


def strays(keys: NamedKeys, *, start: Argument, most: float) -> Call:
    return "strays", (keys.waiting, keys.active), (start, most)


def switch_breaker(keys: NamedKeys, *, open_for: float, call: str | None = None) -> Call:
    return "switch_breaker", (keys.config, keys.flow, keys.counters, *(() if call is None else (call,))), (open_for,)


def take_in(keys: NamedKeys, *, homes: Argument, retired: Argument) -> Call:
    return "take_in", (keys.config,), (homes, retired)


def tally(
    keys: NamedKeys, *, lists: Iterable[str], counter: Argument, begins: bool, ends: bool, members: Iterable[Argument],
) -> Call:
    return "tally", (keys.config, *keys.slots, *lists), (counter, int(begins), int(ends), *members)


def upcoming(*, list: str, skip: float, limit: float, shown: float, most_bytes: float) -> Call:
    return "upcoming", (list,), (skip, limit, shown, most_bytes)


def withdraw(keys: NamedKeys, *, counter: Argument, members: Iterable[Argument], call: str | None = None) -> Call:
    return "withdraw", (*keys.places, *(() if call is None else (call,))), (counter, *members)
