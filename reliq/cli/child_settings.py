"""What a worker process is told by the process that starts it: one JSON document in one environment variable.

The document holds no secret: the Redis URL is in RELIQ_URL, and the options refer to it.
"""

import os
from typing import Any, Self

import msgspec

CHILD = "RELIQ_WORKER_CHILD"  #: environment: ChildSettings as JSON


class ChildSettings(msgspec.Struct, frozen=True):
    """The settings of a worker process that its parent starts, restarts and takes messages back from."""

    owner: str  #: the id under which it holds messages
    place: int = 0  #: which of its parent's processes it is, from 0
    options: dict[str, Any] = {}  #: of `reliq worker`, in place of their defaults
    metrics_folder: str | None = None  #: where the processes share their measurements, if wanted

    @classmethod
    def read(cls) -> Self | None:
        """Return the settings of this process, None if no parent has given it any."""
        document = os.environ.get(CHILD)
        return None if document is None else msgspec.json.decode(document, type=cls)

    @classmethod
    def take(cls) -> Self | None:
        """Return the settings and remove them from the environment: what a handler starts is no child of the parent."""
        settings = cls.read()
        os.environ.pop(CHILD, None)
        return settings

    def environment(self) -> dict[str, str]:
        """Return the environment for the process."""
        return {**os.environ, CHILD: msgspec.json.encode(self).decode()}
