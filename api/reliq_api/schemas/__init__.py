"""The schemas of requests and answers, for OpenAPI."""

from reliq_api.schemas.base import DeathReason, Lease, MessageId, Period, QueueName, Request, Whole
from reliq_api.schemas.dead_letters import (
    DeadLetter,
    DeadLetterDetails,
    DeadLetterPage,
    DeadPurgeRequest,
    Failure,
    Filter,
    RedriveRequest,
    RedriveResult,
)
from reliq_api.schemas.leases import (
    DeadOf,
    Extended,
    ExtendRequest,
    Leased,
    LeaseGiven,
    LeaseRequest,
    ProgressRequest,
    ProgressStored,
    ReleaseOf,
    RetryOf,
    Settled,
    SettleRequest,
    SettleResult,
)
from reliq_api.schemas.messages import BatchEnqueued, BatchResult, Enqueued, NewMessage
from reliq_api.schemas.problems import Health, ProblemDetails
from reliq_api.schemas.queues import (
    Breaker,
    BreakerRequest,
    ConfigChanges,
    Paused,
    Purged,
    PurgeRequest,
    QueueConfig,
    QueueDetails,
    QueueList,
    QueueStats,
)
from reliq_api.schemas.workers import Instructed, Worker, WorkerList
