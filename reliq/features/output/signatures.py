"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.ops.request import Argument, Call


def drop_outputs(*, followed: str, streams: Iterable[str], up_to: float, ids: Iterable[Argument]) -> Call:
    return "output/drop_outputs", (followed, *streams), (up_to, *ids)


def emit(
    *,
    followed: str,
    config: str,
    output: str,
    outputs: str,
    lease: str,
    processing: str,
    id: Argument,
    name: Argument,
    position: Argument,
    nonce: Argument,
    token: Argument,
    chunk: Argument,
    most: float,
    most_bytes: float,
) -> Call:
    return (
        "output/emit",
        (followed, config, output, outputs, lease, processing),
        (id, name, position, nonce, token, chunk, most, most_bytes),
    )


def emitted(*, followed: str, output: str, id: Argument, after: Argument, limit: Argument) -> Call:
    return "output/emitted", (followed, output), (id, after, limit)


def gone_outputs(*, followed: str, outputs: str, limit: float) -> Call:
    return "output/gone_outputs", (followed, outputs), (limit,)


def put_output(
    *,
    followed: str,
    config: str,
    output: str,
    outputs: str,
    brought: str,
    id: Argument,
    head: Argument,
    first: Argument,
    chunks: Iterable[Argument],
) -> Call:
    return "output/put_output", (followed, config, output, outputs, brought), (id, head, first, *chunks)


def put_output_chunk(*, chunk_id: Argument, run: Argument, chunk: Argument) -> tuple[Argument, ...]:
    return (chunk_id, run, chunk)
