"""Targets of rows: one queue, the queue named by a column, or those that a routing column stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reliq.errors import InvalidSetting
from reliq.features.topics.spark import TOPIC
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, check_name
from reliq.model.partitions import Layout
from reliq.ops import Steps
from reliq.spark.routing import Column, Routing
from reliq.spark.spread import read_layouts

#: The routing columns of features.
ROUTING: tuple[Column, ...] = (TOPIC,)


@dataclass(frozen=True)
class Targets:
    """The targets of a job; determined once on the driver, so a repeated task decides the same."""

    queue: str = ""  #: for all rows; if empty, `column` decides for each row
    column: str = ""  #: queue or topic
    routing: Routing | None = None
    layouts: Mapping[str, Layout] = field(default_factory=dict)  #: the homes of all queues known to the driver

    @property
    def home(self) -> JobKeys:
        """The keys for the record of the job: those of its queue, however many homes that has."""
        return QueueKeys(self.queue) if self.queue else SEVERAL

    def of(self, value: str) -> tuple[str, ...]:
        """Return the queues for a row with this value in the column; raises InvalidName, Unroutable."""
        return (check_name(value),) if self.routing is None else self.routing.of(value)


def column_of(names: frozenset[str], queue: str | None, mandatory: bool) -> str:
    """Return the name of the column that decides, or an empty text; raises InvalidSetting.

    `names`: the columns that are options of the message.
    """
    for name in ("topic", "queue"):
        if queue is not None and name in names:
            both = f"column `{name}` routes the rows to queues, option queue names one"
            raise InvalidSetting(f"{both}: leave one of them out")
    if queue is None and names >= {"topic", "queue"}:
        raise InvalidSetting("columns `topic` and `queue` both say where the rows go: drop one of them")
    known = (*(one.name for one in ROUTING), "queue")
    column = next((one for one in known if queue is None and one in names), "")
    if queue is None and not column:
        raise InvalidSetting('name the queue: .option("queue", "orders"), or a column `queue` or `topic`')
    if mandatory and column != "topic":
        raise InvalidSetting("option mandatory is for rows with a column `topic`")
    return column


def targets(queue: str | None, column: str, mandatory: bool) -> Steps[Targets]:
    """Return the targets with the current bindings and layouts."""
    for one in ROUTING:
        if one.name == column:
            routing = yield from one.read(mandatory)
            return Targets("", column, routing, (yield from read_layouts(routing.queues)))
    layouts = yield from read_layouts({queue} if queue else set())
    return Targets(queue or "", column, layouts=layouts)
