"""Options of the Spark source and sink, read and checked on the driver."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from reliq.contract import values
from reliq.contract.nearest import nearest
from reliq.errors import InvalidSetting
from reliq.model.keys import QueueKeys, check_job, check_name
from reliq.model.outgoing import check_headers
from reliq.protocol.application import body_limit, eviction_allowed
from reliq.runtime.tracing import is_traceparent
from reliq.runtime.url import dereferenced, is_reference
from reliq.spark.rules import Invalid, KeyAs, RepeatedHeaders, Rules
from reliq.transport.store import Store

State = Literal["ready", "delayed", "dead"]

LEASE = 12 * 3600.0  #: seconds a stream may be stopped and still continue with its batch
JOB_REMEMBERED = 7 * 86_400.0  #: seconds for which a named job is not written a second time
MAX_VERSION = 2**53 - 1  #: the largest whole number that Redis's Lua compares exactly
MAX_APPLICATION_BYTES = 512
MAX_MESSAGES = 10_000  #: messages of a micro-batch
MAX_DELAY = 60.0  #: seconds that a batch with too few messages waits
ROWS_PER_PARTITION = 50_000
STREAM_ROWS_PER_PARTITION = 5_000

_COMMON = ("connection", "url", "queue", "allowEviction")
_WRITE = (
    *_COMMON, "job", "ifCommitted", "txnAppId", "txnVersion", "application", "timeLimit", "maxBody", "mandatory",
    "body", "columns", "keyAs", "dedupWindow", "invalid", "deadQueue", "repeatedHeaders", "onHandled",
    "maxBytesPerSecond", "durability", "traceparent", "tracestate",
)  # fmt: skip
_READ = (*_COMMON, "state", "numPartitions", "jobs")
_JOBS = (*_COMMON, "jobs")
_STREAM = (
    *_COMMON, "maxMessagesPerBatch", "minMessagesPerBatch", "maxBatchDelay", "maxMessagesPerSecond", "failOnDataLoss",
    "lease", "numPartitions",
)  # fmt: skip
_REFERENCES = "write env:RELIQ_URL, file:/run/secrets/redis or conf:spark.reliq.secret.url"
_NO_SERVER = (
    "no Redis server is named, and on Spark there is no default: set RELIQ_URL, or spark.reliq.secret.url of the "
    'session, and then call reliq.spark.register(spark); or write .option("connection", "file:/run/secrets/redis")'
)
_SPARKS_OWN = {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class Connection:
    """The Redis server. Its repr shows no password, because Spark prints options."""

    url: str = field(repr=False)
    allow_eviction: bool = False

    def store(self) -> Store:
        return Store(self.url, allow_eviction=self.allow_eviction)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    connection: Connection
    queue: str | None
    job: str | None
    time_limit: float
    mandatory: bool
    body: str | None  #: "row", "value", or None: `value` if there is such a column
    columns: tuple[str, ...] | None  #: the columns that are options of the message; None: all with the name of one
    rules: Rules
    transaction: tuple[str, int] | None = None  #: the application and its version, of a write that is made once
    application: str = ""  #: whose names of jobs for several queues are meant; empty: unknown
    if_committed: str = "skip"  #: or "fail": whether it is an error that the job was committed before
    session: str = ""  #: of Spark, as `register` has named it; empty: unknown
    on_handled: str | None = None  #: the queue of a message that follows when every row has been handled
    rate: int | None = None  #: bytes a second that all tasks of the job stage
    durability: str | None = None  #: of the commit; None: the strongest of its queues


@dataclass(frozen=True)
class ReadOptions:
    connection: Connection
    keys: QueueKeys
    state: State
    partitions: int | None


@dataclass(frozen=True)
class JobsOptions:
    connection: Connection
    queue: str  #: empty: of all queues


@dataclass(frozen=True)
class StreamOptions:
    connection: Connection
    keys: QueueKeys
    max_messages: int
    lease: float
    partitions: int | None
    min_messages: int | None = None  #: of a batch that does not wait for `max_delay`
    max_delay: float = MAX_DELAY
    rate: int | None = None  #: messages a second
    fail_on_loss: bool = False  #: whether a replayed batch with fewer messages than it had is an error


class Given:
    """The options of one source or sink, as given by Spark.

    `url`: the default that `register` was given. `conf`: the session's settings that `conf:` may refer to.
    `environment`: variables that count before those of this process, which Spark may have started long ago.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        url: str | None,
        conf: Mapping[str, str] = {},
        environment: Mapping[str, str] = {},
        session: str = "",
    ) -> None:
        self._options = {name.lower().replace("_", ""): value for name, value in options.items()}
        self._url = url
        self._conf = conf
        self._given_environment = environment
        self._session = session

    @property
    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._given_environment}

    def for_writing(self) -> WriteOptions:
        self._check(_WRITE)
        job = self._options.get("job")
        if job is not None:
            check_job(job)
        time_limit = self._duration("timeLimit", values.JOB_TIME_LIMIT, 60.0)
        queue = self._keys().queue if "queue" in self._options else None
        return WriteOptions(
            connection=self.connection(),
            queue=queue,
            job=job,
            time_limit=time_limit,
            mandatory=self._flag("mandatory") or False,
            body=self._one_of("body", ("value", "row")),
            columns=self._names("columns"),
            rules=self._rules(queue),
            transaction=self._transaction(job),
            application=self._application(),
            if_committed=self._one_of("ifCommitted", ("skip", "fail")) or "skip",
            session=self._session,
            on_handled=check_name(self._options["onhandled"]) if "onhandled" in self._options else None,
            rate=self._bytes_per_second(),
            durability=self._durability(),
        )

    def _durability(self) -> str | None:
        text = self._options.get("durability")
        return None if text is None else values.durability(text, "option durability")

    def _bytes_per_second(self) -> int | None:
        text = self._options.get("maxbytespersecond")
        return None if text is None else values.size(text, "option maxBytesPerSecond", 1024, 2**40)

    def _transaction(self, job: str | None) -> tuple[str, int] | None:
        """Return application and version, as Delta has them."""
        application, version = self._options.get("txnappid"), self._whole("txnVersion", MAX_VERSION, 0)
        if application is None and version is None:
            return None
        if not application or version is None:
            raise InvalidSetting("the options txnAppId and txnVersion belong together: give both")
        if job is not None:
            raise InvalidSetting("the options txnAppId and job both say when rows are the same: leave one of them out")
        if len(application.encode()) > MAX_APPLICATION_BYTES:
            raise InvalidSetting(f"option txnAppId has more than {MAX_APPLICATION_BYTES} bytes")
        return application, version

    def _application(self) -> str:
        known = (self._options.get("application"), *map(self._conf.get, ("spark.reliq.application", "spark.app.name")))
        return next(filter(None, known), "")

    def _rules(self, queue: str | None) -> Rules:
        invalid = self._one_of("invalid", get_args(Invalid)) or "fail"
        dead_queue = self._options.get("deadqueue", queue)
        if invalid == "dead" and dead_queue is None:
            raise InvalidSetting(
                "option invalid is dead: name the queue whose dead letters the invalid rows become: "
                '.option("deadQueue", "orders")'
            )
        return Rules(
            max_body=body_limit(self._options.get("maxbody"), "option maxBody", self._environment),
            invalid=cast("Invalid", invalid),
            dead_queue=check_name(dead_queue) if invalid == "dead" else "",
            key_as=cast("KeyAs", self._one_of("keyAs", ("order", "header")) or "both"),
            repeated_headers=cast(
                "RepeatedHeaders", self._one_of("repeatedHeaders", get_args(RepeatedHeaders)) or "refuse"
            ),
            window=self._duration("dedupWindow", 600.0, 0.001),
            trace=self._trace(),
        )

    def for_reading(self) -> ReadOptions:
        self._check(_READ)
        state = cast("State", self._one_of("state", get_args(State)) or "ready")
        return ReadOptions(self.connection(), self._keys(), state, self._whole("numPartitions", 100_000))

    @property
    def asks_for_jobs(self) -> bool:
        """Whether a read is of jobs, not of messages."""
        return self._flag("jobs") or False

    def for_jobs(self) -> JobsOptions:
        self._check(_JOBS)
        return JobsOptions(self.connection(), self._keys().queue if "queue" in self._options else "")

    def for_streaming(self) -> StreamOptions:
        self._check(_STREAM)
        return StreamOptions(
            self.connection(),
            self._keys(),
            self._whole("maxMessagesPerBatch", 10_000_000) or MAX_MESSAGES,
            self._duration("lease", LEASE, values.MIN_LEASE_SECONDS),
            self._whole("numPartitions", 100_000),
            self._whole("minMessagesPerBatch", 10_000_000),
            self._duration("maxBatchDelay", MAX_DELAY, 0.001),
            self._whole("maxMessagesPerSecond", 10_000_000),
            self._flag("failOnDataLoss") or False,
        )

    def _check(self, known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        for name in self._options:
            if name not in names and name not in _SPARKS_OWN:
                if name == "path":
                    raise InvalidSetting('the format takes no path: name the queue, .option("queue", "orders")')
                if known is _WRITE:
                    _check_column(name)
                near = nearest(name, names)
                hint = f"; did you mean {names[near]}?" if near else ""
                raise InvalidSetting(f"there is no option {name!r} here; the options are {', '.join(known)}{hint}")

    def connection(self) -> Connection:
        return Connection(self._where(), eviction_allowed(self._flag("allowEviction"), self._environment))

    def _where(self) -> str:
        """Return the Redis URL: the one that `connection` refers to, else `url`, else the default."""
        reference, url = self._options.get("connection"), self._options.get("url")
        if reference is None:
            default = url or self._url or self._environment.get("RELIQ_URL")
            if not default:
                raise InvalidSetting(_NO_SERVER)
            return dereferenced(default, self._conf, self._environment)
        if url is not None:
            raise InvalidSetting("the options connection and url are both given: leave url out")
        if not is_reference(reference):
            raise InvalidSetting(
                f"option connection (not shown, it may have a password) is not a reference: {_REFERENCES}"
            )
        return dereferenced(reference, self._conf, self._environment)

    def _keys(self) -> QueueKeys:
        if "queue" not in self._options:
            raise InvalidSetting(
                'name the queue: .option("queue", "orders"), or in SQL: FROM my_table WITH (queue = \'orders\'). Spark '
                "does not pass the OPTIONS of a table to a Python data source, only those of a temporary view"
            )
        return QueueKeys(check_name(self._options["queue"]))

    def _trace(self) -> dict[str, str]:
        names: tuple[str, ...] = ("traceparent", "tracestate")
        trace = {name: self._options[name] for name in names if name in self._options}
        if trace and not is_traceparent(trace.get("traceparent", "")):
            raise InvalidSetting("option traceparent is not valid: give the value from reliq.otel.context()")
        return check_headers(trace)

    def _flag(self, name: str) -> bool | None:
        text = self._options.get(name.lower())
        if text is None:
            return None
        if text.lower() not in ("true", "false"):
            raise InvalidSetting(f"option {name} is {text!r}: it is true or false")
        return text.lower() == "true"

    def _one_of(self, name: str, known: tuple[str, ...]) -> str | None:
        text = self._options.get(name.lower())
        if text is not None and text.lower() not in known:
            raise InvalidSetting(f"option {name} is {text!r}: it is {', '.join(known[:-1])} or {known[-1]}")
        return text and text.lower()

    def _names(self, name: str) -> tuple[str, ...] | None:
        text = self._options.get(name.lower())
        return None if text is None else tuple(one.strip().lower() for one in text.split(",") if one.strip())

    def _whole(self, name: str, largest: int, least: int = 1) -> int | None:
        text = self._options.get(name.lower())
        if text is None:
            return None
        value: Any = int(text) if text.strip().isdecimal() else text
        return values.whole(value, f"option {name}", least, largest)

    def _duration(self, name: str, default: float, shortest: float) -> float:
        text = self._options.get(name.lower())
        if text is None:
            return default
        plain: values.Duration = float(text) if text.replace(".", "", 1).isdecimal() else text
        return values.seconds(plain, f"option {name}", shortest)


def _check_column(name: str) -> None:
    """Raise InvalidSetting for an option that is a column of each row."""
    from reliq.spark.write_columns import OPTIONS  # not above: it needs PySpark

    for column, (wanted, _) in OPTIONS.items():
        if name in (plain := column.replace("_", ""), plain.removesuffix("ms")):
            how = f'.withColumn("{column}", lit(...))'
            raise InvalidSetting(f"{name} is no option but a column, `{column}` ({wanted}): {how}")
