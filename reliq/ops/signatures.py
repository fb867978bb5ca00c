"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def advance_within(*, places: Sequence[str], element: Argument, counter: Argument, dead: bool) -> Call:
    return "advance_within", (*places,), (element, counter, int(dead))


def allow(*, allowance: str, rate: float, wanted: float) -> Call:
    return "allow", (allowance,), (rate, wanted)


def announce(*, queues: str, queue: Argument) -> Call:
    return "announce", (queues,), (queue,)


def arrive(
    *, producers: str, bodies: Iterable[str], producer: Argument, sequence: float, references: Iterable[Argument]
) -> Call:
    return "arrive", (producers, *bodies), (producer, sequence, *references)


def attend(*, monitors_until: str, monitors_since: str, monitor: Argument, lasts: Argument, most: float) -> Call:
    return "attend", (monitors_until, monitors_since), (monitor, lasts, most)


def breaker(
    *,
    config: str,
    flow: str,
    counters: str,
    passed: float,
    failed: float,
    probe: Argument,
    threshold: float,
    fewest: float,
    window: float,
    open_for: float,
) -> Call:
    return "breaker", (config, flow, counters), (passed, failed, probe, threshold, fewest, window, open_for)


def browse(
    *,
    zset: str,
    order: Argument,
    low: Argument,
    high: Argument,
    skip: float,
    limit: float,
    shown: float,
    most_bytes: float,
) -> Call:
    return "browse", (zset,), (order, low, high, skip, limit, shown, most_bytes)


def cancel(*, places: Sequence[str], delayed: str, index: str, id: Argument) -> Call:
    return "cancel", (*places, delayed, index), (id,)


def claim(
    *,
    places: Sequence[str],
    processing: str,
    lease: str,
    consumers: str,
    lease_ms: Argument,
    limit: float,
    room: float,
    consumer: Argument,
    held: Argument | None = None,
) -> Call:
    return (
        "claim",
        (*places, processing, lease, consumers),
        (lease_ms, limit, room, consumer, *(() if held is None else (held,))),
    )


def claim_limited(
    *,
    places: Sequence[str],
    processing: str,
    lease: str,
    consumers: str,
    flow: str,
    slots: Sequence[str],
    delayed: str,
    index: str,
    buckets: str,
    lease_ms: Argument,
    limit: float,
    room: float,
    consumer: Argument,
    reports: bool,
    suspect_list: str | None = None,
    suspect: Argument | None = None,
) -> Call:
    return (
        "claim_limited",
        (
            *places,
            processing,
            lease,
            consumers,
            flow,
            *slots,
            delayed,
            index,
            buckets,
            *(() if suspect_list is None else (suspect_list,)),
        ),
        (lease_ms, limit, room, consumer, int(reports), *(() if suspect is None else (suspect,))),
    )


def discard(
    *,
    dead: str,
    counters: str,
    index: str,
    bodies: str,
    followed: str,
    config: str,
    counter: Argument,
    letters: Iterable[Argument],
) -> Call:
    return "discard", (dead, counters, index, bodies, followed, config), (counter, *letters)


def discard_letter(*, element: Argument, id: Argument, reference: Argument) -> tuple[Argument, ...]:
    return (element, id, reference)


def drop_counters(*, config: str, counters: str, counts: Iterable[Argument]) -> Call:
    return "drop_counters", (config, counters), (*counts,)


def due(*, delayed: Iterable[str], ahead: Argument) -> Call:
    return "due", (*delayed,), (ahead,)


def end_change(*, config: str, field: Argument, token: Argument) -> Call:
    return "end_change", (config,), (field, token)


def enqueue(
    *,
    places: Sequence[str],
    delayed: str,
    index: str,
    producers: str,
    dedup_keys: Iterable[str],
    producer: Argument,
    sequence: float,
    plain_and_version: Argument,
    batches: Argument,
    elements: Iterable[Argument],
    options: Iterable[Argument],
) -> Call:
    return (
        "enqueue",
        (*places, delayed, index, producers, *dedup_keys),
        (producer, sequence, plain_and_version, batches, *elements, *options),
    )


def enqueue_option(
    *, id: Argument, element: Argument, delay: Argument, window: Argument, digest: Argument
) -> tuple[Argument, ...]:
    return (id, element, delay, window, digest)


def exchange_policy(*, config: str, holders: str, version: Argument, known: float, fields: Iterable[Argument]) -> Call:
    return "exchange_policy", (config, holders), (version, known, *fields)


def existing(*, names: Iterable[str]) -> Call:
    return "existing", (*names,), ()


def find(*, zset: str, index: str, id: Argument, skip: float, shown: float, most_bytes: float) -> Call:
    return "find", (zset, index), (id, skip, shown, most_bytes)


def forget(
    *,
    consumers: str,
    processing: str,
    lease: str,
    trying: str,
    workers: str,
    consumer: Argument,
    leaving: bool,
    remembered: Argument,
    settled: str | None = None,
) -> Call:
    return (
        "forget",
        (consumers, processing, lease, trying, workers, *(() if settled is None else (settled,))),
        (consumer, int(leaving), remembered),
    )


def hasten(*, delayed: str, index: str, ids: Iterable[Argument]) -> Call:
    return "hasten", (delayed, index), (*ids,)


def heartbeat(*, lease: str, lease_ms: Argument) -> Call:
    return "heartbeat", (lease,), (lease_ms,)


def held_keys(*, active: str, config: str, cursor: Argument) -> Call:
    return "held_keys", (active, config), (cursor,)


def hold(*, config: str, flow: str, held_ms: Argument) -> Call:
    return "hold", (config, flow), (held_ms,)


def hold_key(*, config: str, buckets: str, group: Argument, held_ms: Argument) -> Call:
    return "hold_key", (config, buckets), (group, held_ms)


def instruct(
    *, told: str, consumers: str, consumer: Argument, field: Argument, at: Argument, kept: Argument, anyway: bool
) -> Call:
    return "instruct", (told, consumers), (consumer, field, at, kept, int(anyway))


def lead(*, flow: str, consumer: Argument, wait_ms: Argument) -> Call:
    return "lead", (flow,), (consumer, wait_ms)


def mark_tried(*, trying: str, consumer: Argument, tag: Argument) -> Call:
    return "mark_tried", (trying,), (consumer, tag)


def newest(*, places: Sequence[str], processing: str, groups: Iterable[Argument]) -> Call:
    return "newest", (*places, processing), (*groups,)


def promote(*, places: Sequence[str], delayed: str, index: str, limit: Argument) -> Call:
    return "promote", (*places, delayed, index), (limit,)


def purge(*, places: Sequence[str], delayed: str, index: str, limit: float) -> Call:
    return "purge", (*places, delayed, index), (limit,)


def push(
    *,
    messages: str,
    counters: str,
    config: str,
    producers: str,
    producer: Argument,
    sequence: float,
    entry: Argument,
    elements: Iterable[Argument],
    bodies: str | None = None,
) -> Call:
    return (
        "push",
        (messages, counters, config, producers, *(() if bodies is None else (bodies,))),
        (producer, sequence, entry, *elements),
    )


def put_notes(
    *,
    report: str,
    told: str,
    brought: str,
    id: Argument,
    cancelled: Argument,
    kept: Argument,
    told_kept: Argument,
    fields: Iterable[Argument],
) -> Call:
    return "put_notes", (report, told, brought), (id, cancelled, kept, told_kept, *fields)


def reclaim_when_full(
    *,
    places: Sequence[str],
    processing: str,
    lease: str,
    dead: str,
    index: str,
    slots: Sequence[str],
    deadline: Argument,
    messages: Iterable[Argument],
) -> Call:
    return "reclaim_when_full", (*places, processing, lease, dead, index, *slots), (deadline, *messages)


def reclaim_when_full_message(
    *, element: Argument, destination: Argument, counter: Argument, id: Argument, again: Argument
) -> tuple[Argument, ...]:
    return (element, destination, counter, id, again)


def redrive(*, places: Sequence[str], dead: str, index: str, letters: Iterable[Argument]) -> Call:
    return "redrive", (*places, dead, index), (*letters,)


def redrive_letter(*, element: Argument, id: Argument, member: Argument, again: Argument) -> tuple[Argument, ...]:
    return (element, id, member, again)


def register(
    *,
    consumers: str,
    lease: str,
    trying: str,
    workers: str,
    consumer: Argument,
    lease_ms: Argument,
    marks: bool,
    about: Argument | None = None,
) -> Call:
    return (
        "register",
        (consumers, lease, trying, workers),
        (consumer, lease_ms, int(marks), *(() if about is None else (about,))),
    )


def release_lines(*, places: Sequence[str], version: float, groups: Iterable[Argument]) -> Call:
    return "release_lines", (*places,), (version, *groups)


def replace_layout(
    *, config: str, counters: str, before: Argument, after: Argument, alone: bool, counts: Iterable[Argument]
) -> Call:
    return "replace_layout", (config, counters), (before, after, int(alone), *counts)


def report(
    *,
    lease: str,
    report: str,
    processing: str,
    tag: Argument,
    kept: Argument,
    name: Argument,
    place: Argument,
    fields: Iterable[Argument],
) -> Call:
    return "report", (lease, report, processing), (tag, kept, name, place, *fields)


def send_home(*, places: Sequence[str], members: Iterable[Argument]) -> Call:
    return "send_home", (*places,), (*members,)


def serve(*, servers: str, config: str, owner: Argument, silent: float) -> Call:
    return "serve", (servers, config), (owner, silent)


def set_policy(*, config: str, version: Argument, fields: Iterable[Argument]) -> Call:
    return "set_policy", (config,), (version, *fields)


def settle(
    *,
    places: Sequence[str],
    processing: str,
    lease: str,
    delayed: str,
    dead: str,
    index: str,
    slots: Sequence[str],
    marks: Iterable[str],
    lease_ms: Argument,
    limit: float,
    room: float,
    row: float,
    first_name: Argument,
    last_name: Argument,
    row_uncounted: float,
    ack_count: float,
    uncounted: Argument,
    results_ms: float,
    row_batches: Argument,
    acks: Iterable[Argument],
    moves: Iterable[Argument],
    results: Iterable[Argument],
    outcomes: Sequence[str] = (),
) -> Call:
    return (
        "settle",
        (*places, processing, lease, delayed, dead, index, *slots, *marks, *outcomes),
        (
            lease_ms,
            limit,
            room,
            row,
            first_name,
            last_name,
            row_uncounted,
            ack_count,
            uncounted,
            results_ms,
            row_batches,
            *acks,
            *moves,
            *results,
        ),
    )


def settle_ack(*, name: Argument, size: Argument, place: Argument) -> tuple[Argument, ...]:
    return (name, size, place)


def settle_move(
    *,
    name: Argument,
    size: Argument,
    place: Argument,
    destination: Argument,
    counter: Argument,
    id: Argument,
    again: Argument,
    delay: Argument,
    mark_ms: Argument,
) -> tuple[Argument, ...]:
    return (name, size, place, destination, counter, id, again, delay, mark_ms)


def settle_result(*, result_id: Argument, result: Argument) -> tuple[Argument, ...]:
    return (result_id, result)


def starts(*, bodies: str, shown: float, references: Iterable[Argument]) -> Call:
    return "starts", (bodies,), (shown, *references)


def stats(
    *,
    places: Sequence[str],
    delayed: str,
    dead: str,
    prepared: str,
    flow: str,
    ticks: str,
    consumers: str,
    received: str,
    parked: str,
    lists: Iterable[str],
) -> Call:
    return "stats", (*places, delayed, dead, prepared, flow, ticks, consumers, received, parked, *lists), ()


def strays(*, waiting: str, active: str, group: Argument, most: float) -> Call:
    return "strays", (waiting, active), (group, most)


def switch_breaker(*, config: str, flow: str, counters: str, open_for: float) -> Call:
    return "switch_breaker", (config, flow, counters), (open_for,)


def take_in(*, config: str, homes: Argument, retired: Argument) -> Call:
    return "take_in", (config,), (homes, retired)


def tally(
    *,
    config: str,
    slots: Sequence[str],
    lists: Iterable[str],
    counter: Argument,
    begins: bool,
    ends: bool,
    members: Iterable[Argument],
) -> Call:
    return "tally", (config, *slots, *lists), (counter, int(begins), int(ends), *members)


def upcoming(*, messages: str, skip: float, limit: float, shown: float, most_bytes: float) -> Call:
    return "upcoming", (messages,), (skip, limit, shown, most_bytes)
