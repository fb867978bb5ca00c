"""Duties: all of them, in the order of their turns. To add one, write a class (`duty.Duty`), and enter it here."""

from typing import Any

from reliq.features.batches.duty import Batches, LateCounts
from reliq.features.flows.duty import OpenFlows, Telling
from reliq.features.output.duty import OutputCleanup
from reliq.features.prepared.duty import PreparedTimeouts
from reliq.features.receipts.duty import Visibility
from reliq.features.schedules.duty import Schedules
from reliq.features.staging.duty import StagedJobs
from reliq.features.steps.duty import SignalTimeouts
from reliq.features.topics.duty import BroadcastCleanup
from reliq_monitor.duty import Duty
from reliq_monitor.forwarding import Forwarding
from reliq_monitor.partitions import Spreading
from reliq_monitor.promote import Promotion
from reliq_monitor.reappearance import Reappearance
from reliq_monitor.retention import DeadLetterTrimming, SilentProducers, SilentStreams
from reliq_monitor.returns import Returns

DUTIES: tuple[type[Duty[Any]], ...] = (
    BroadcastCleanup,
    StagedJobs,
    PreparedTimeouts,
    Batches,
    Spreading,
    Schedules,
    Returns,
    Forwarding,
    DeadLetterTrimming,
    SilentProducers,
    SilentStreams,
    LateCounts,
    Reappearance,
    Visibility,
    SignalTimeouts,
    OutputCleanup,
    Telling,
    OpenFlows,
    Promotion,
)

#: Work that belongs to no queue: of each piece one monitor leads.
COMMON: tuple[str, ...] = tuple(dict.fromkeys(duty.common for duty in DUTIES if duty.common))
