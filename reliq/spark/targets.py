"""Where rows go: into one queue, into the queue that a column names, or into all that are bound to a topic."""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from reliq.errors import InvalidSetting, Unroutable
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, check_name
from reliq.model.routing import Routes, check_routing_key
from reliq.ops import Steps
from reliq.protocol.topics import read_routes


@dataclass(frozen=True)
class Targets:
    """Found on the driver once for a job, bindings and all: a task that is run again decides the same."""

    queue: str = ""  #: of all rows; without one `column` decides for each
    column: str = ""  #: queue or topic
    routes: Routes | None = None
    alternate: str | None = None  #: for rows that no queue is bound for
    mandatory: bool = False  #: such rows are refused

    @property
    def home(self) -> JobKeys:
        """Where the record of the job lies."""
        return QueueKeys(self.queue) if self.queue else SEVERAL

    def of(self, value: str) -> tuple[str, ...]:
        """The queues of a row whose column has this value; raises InvalidName, Unroutable."""
        if self.routes is None:
            return (check_name(value),)
        queues = self.routes.match(check_routing_key(value))
        if not queues and self.mandatory:
            raise Unroutable(f"no queue is bound to a pattern that matches {value!r}")
        return queues or ((self.alternate,) if self.alternate else ())


def column_of(schema: StructType, queue: str | None, mandatory: bool) -> str:
    """The column that decides, empty where none does; raises InvalidSetting."""
    names = set(schema.names)
    if queue is not None and "topic" in names:
        raise InvalidSetting("column `topic` routes the rows to queues, option queue names one: leave one of them out")
    if queue is None and names >= {"topic", "queue"}:
        raise InvalidSetting("columns `topic` and `queue` both say where the rows go: drop one of them")
    column = next((one for one in ("topic", "queue") if queue is None and one in names), "")
    if queue is None and not column:
        raise InvalidSetting('name the queue: .option("queue", "orders"), or a column `queue` or `topic`')
    if mandatory and column != "topic":
        raise InvalidSetting("option mandatory is for rows with a column `topic`")
    return column


def targets(queue: str | None, column: str, mandatory: bool) -> Steps[Targets]:
    """With the bindings as they are now."""
    if column != "topic":
        return Targets(queue or "", column)
    routes, alternate = yield from read_routes()
    return Targets("", column, routes, alternate, mandatory)
