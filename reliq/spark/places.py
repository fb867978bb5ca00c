"""Where the roll forward puts each message: by its delay, key, priority and deduplication key."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.model.keys import dedup_digest
from reliq.ops.chunks import place
from reliq.spark.encoding import BYTES, as_bytes


def places_of(fields: dict[str, pa.Array], count: int, window: float) -> pa.Array | None:
    """Return the place of each row (reliq.ops.chunks); None if all rows go to the head of the ready messages.

    `window`: seconds for which a deduplication key holds.
    """
    delays, keys, priorities, dedup = (fields.get(name) for name in ("delay", "key", "priority", "dedup"))
    delayed = delays is not None and pc.any(pc.greater(delays, 0)).as_py()
    keyed = keys is not None and keys.null_count < count
    ranked = priorities is not None and pc.any(pc.not_equal(priorities, "normal")).as_py()
    if not (delayed or keyed or ranked or (dedup is not None and dedup.null_count < count)):
        return None
    after = delays.fill_null(0) if delays is not None else pa.array(np.zeros(count, "i8"))
    if dedup is None:
        return as_bytes(after)
    rows = zip(after.to_pylist(), dedup.to_pylist(), fields["body"].to_pylist(), strict=True)
    ms = round(window * 1000)
    return pa.array([_place(delay, key, body, ms) for delay, key, body in rows], BYTES)


def _place(delay: int, key: bytes | None, body: bytes, window: int) -> bytes:
    if key is None:
        return place(delay)
    digest = hashlib.blake2b(body, digest_size=8).hexdigest()  # as NewMessage.digest
    return place(delay, window, dedup_digest(key.decode()), digest)
