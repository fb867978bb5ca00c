"""Which worker processes serve the partitions of a queue, as each of them computes it."""

from collections import Counter

from reliq.model.partitions import Layout
from reliq.worker.assignment import assigned


def shares(partitions: int, owners: list[str]) -> dict[str, set[str]]:
    """Return what each of these processes serves."""
    names = Layout(tuple(map(str, range(1, partitions)))).names("orders")
    return {one: set(assigned(names, owners, one)) for one in owners}


def loads(served: dict[str, set[str]]) -> list[float]:
    """Return how many partitions' work each process has, if those that serve one take equally much of it."""
    servers = Counter(one for some in served.values() for one in some)
    return [sum(1 / servers[one] for one in some) for some in served.values()]
