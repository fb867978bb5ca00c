"""What all work in a Python worker of Spark shares: its errors are one sentence, its store and its modules stay."""

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from reliq import ops
from reliq.errors import ReliqError
from reliq.spark.options import Connection
from reliq.transport.store import Store


@contextmanager
def in_worker() -> Iterator[None]:
    """Do a piece of work. An error of reliq is shown without its traceback: the sentence is what the user can use.

    This Python worker of Spark ends with the error, so the setting concerns no other error.
    """
    try:
        yield
    except ReliqError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
    finally:
        _freeze_modules()


@functools.lru_cache(maxsize=4)
def store_of(connection: Connection) -> Store:
    """Return the store of this worker for a server. The next task uses its connection again.

    To connect takes longer than to stage a few rows. Spark ends workers that have been idle for a minute.
    """
    return connection.store()


@functools.lru_cache(maxsize=4096)
def announce(connection: Connection, run: str, queue: str) -> None:
    """Make a queue known to monitors, once for all tasks of a job's run in this worker."""
    store_of(connection).call(ops.announce(queue))


@functools.cache
def _freeze_modules() -> None:
    """Exclude what is loaded now from garbage collections, once in the life of a worker.

    PySpark collects after every task. To look through its own modules, Arrow's and numpy's takes 40 ms each time, many
    times as long as a small task, and they are never garbage.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith("pyspark."):  # not in the user's own process
        gc.freeze()
