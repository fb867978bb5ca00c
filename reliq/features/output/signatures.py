"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def drop_outputs(keys: NamedKeys, *, streams: Iterable[str], up_to: float, messages: Records) -> Call:
    return "output/drop_outputs", (keys.followed, *streams), (up_to, *flat(messages))


def drop_outputs_message(*, id: Argument, left_at: Argument) -> Record:
    return (id, left_at)


def emit(
    keys: NamedKeys, *, output: str, lease: str, processing: str, id: Argument, name: Argument, position: Argument,
    nonce: Argument, token: Argument, chunk: Argument, most: float, most_bytes: float,
) -> Call:
    return (
        "output/emit",
        (keys.followed, keys.config, output, keys.outputs, lease, processing),
        (id, name, position, nonce, token, chunk, most, most_bytes),
    )


def emitted(keys: NamedKeys, *, output: str, id: Argument, after: Argument, limit: Argument) -> Call:
    return "output/emitted", (keys.followed, output), (id, after, limit)


def gone_outputs(keys: NamedKeys, *, limit: float) -> Call:
    return "output/gone_outputs", (keys.followed, keys.outputs), (limit,)


def put_output(
    keys: NamedKeys, *, output: str, brought: str, id: Argument, head: Argument, first: Argument, chunks: Records,
) -> Call:
    return (
        "output/put_output",
        (keys.followed, keys.config, output, keys.outputs, brought),
        (id, head, first, *flat(chunks)),
    )


def put_output_chunk(*, chunk_id: Argument, run: Argument, chunk: Argument) -> Record:
    return (chunk_id, run, chunk)
