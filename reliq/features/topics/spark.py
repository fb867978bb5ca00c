"""The column `topic` of rows that Spark writes: each row goes to all queues bound to it."""

from collections.abc import Collection
from dataclasses import dataclass

from reliq.errors import Unroutable
from reliq.features.topics.routing import Routes, check_routing_key
from reliq.features.topics.steps import or_alternate, read_routes
from reliq.ops import Steps
from reliq.spark.routing import Column


@dataclass(frozen=True)
class _Bindings:
    """The bindings, determined once on the driver."""

    routes: Routes
    alternate: str | None
    mandatory: bool  #: whether rows that no queue is bound for are refused

    @property
    def queues(self) -> Collection[str]:
        return self.routes.queues | ({self.alternate} if self.alternate else set())

    def of(self, value: str) -> tuple[str, ...]:
        queues = self.routes.match(check_routing_key(value))
        if not queues and self.mandatory:
            raise Unroutable(f"no queue is bound to a pattern that matches {value!r}")
        return or_alternate(queues, self.alternate)


def _read(mandatory: bool) -> Steps[_Bindings]:
    routes, alternate = yield from read_routes()
    return _Bindings(routes, alternate, mandatory)


TOPIC = Column("topic", _read)
