"""The names of the fields of every hash in Redis, spelled here and in the scripts of reliq/lua.

A test compares the two (tests/unit/test_schema.py). The names of keys are in reliq.model.keys. The
fields of the other hashes are ids, and name nothing: of messages (index), order keys (active, cycle), consumers
(trying, workers), producers (producers), streams (epochs) and API keys.
"""

from typing import Final

from reliq.contract import counter_names
from reliq.contract.settings import SETTINGS


class Config:
    """`config` of a queue: its policy, and what scripts note about it."""

    MAX_LENGTH: Final = "max_length"
    MAX_BYTES: Final = "max_bytes"
    MAX_DELIVERIES: Final = "max_deliveries"
    DEAD_MAX_AGE: Final = "dead_max_age"  #: seconds
    DEAD_MAX_COUNT: Final = "dead_max_count"
    DEAD_TO: Final = "dead_to"  #: the queue that dead letters are sent to
    DURABILITY: Final = "durability"
    PAUSED: Final = "paused"  #: present while the queue is paused
    VERSION: Final = "version"  #: counts the changes of the policy
    OVERFLOW: Final = "overflow"  #: "drop" in the queue of a broadcast's instance: a full queue drops what is published
    AWAITED: Final = "awaited"  #: seconds for which such a queue stays without a consumer; 0 once it had one
    RATE: Final = "rate"  #: such as 100/s: messages given out
    BURST: Final = "burst"  #: messages that the rate lets through at once
    CONCURRENCY: Final = "concurrency"  #: messages in processing at once
    KEY_RATE: Final = "key_rate"  #: such as 5/s: messages of one key given out
    KEY_CONCURRENCY: Final = "key_concurrency"  #: messages of one limit key ready or in processing at once
    FAIR: Final = "fair"  #: present: one message of each limit key after another
    WEIGHTS: Final = "weights"  #: JSON: limit key -> how many of its messages are taken in its turn
    WEIGHT_DIGESTS: Final = "weight_digests"  #: the same for scripts: digest=weight, with blanks between
    TRACK: Final = "track"  #: present: `followed` has an index of all messages
    HISTORY: Final = "history"  #: seconds for which `history` keeps the transitions of messages
    KEEP_OUTPUT: Final = "keep_output"  #: seconds for which the output of a message is kept after its latest chunk
    BATCHED: Final = "batched"  #: how many open batches have messages in this queue
    #: How many messages have records in `followed`, also ended ones; see the slice `steps`.
    RECORDED: Final = "recorded"
    #: How many messages have open streams of output; see the slice `output`.
    EMITTED: Final = "emitted"
    #: How many messages with output have left their queue unhandled.
    DROPPED: Final = "dropped"
    #: How many messages have others that wait for them; see the slice `flows`.
    FLOWING: Final = "flowing"
    #: How often something has happened to members of flows.
    FLOWED: Final = "flowed"
    PARTITIONS: Final = "partitions"  #: JSON: the queue's partitions (reliq.model.partitions.Layout); in the first one
    WHOLE: Final = "whole"  #: JSON: settings of the whole queue, of which this field's partition has its share
    CHANGE: Final = "change"  #: in the first partition: a change of the policy that has not reached all others
    HOMES: Final = "homes"  #: in a partition: the buckets of which it is the home
    RETIRED: Final = "retired"  #: 1 in a partition that takes no new messages, 0 in others (shared/partition.lua)
    DEDUP_UNTIL: Final = "dedup_until"  #: in a partition: ms at which the last of its dedup keys has expired, or later
    LIMITED: Final = "limited"  #: present while claims have to ask for limits (claim_limited)
    PRIORITISED: Final = "prioritised"  #: present once a message had a priority
    WEIGHTED: Final = "weighted"  #: present once a message had a cost
    ROUND: Final = "round"  #: the number of the cycle's current round
    ROUND_HELD: Final = "round_held"  #: ms at which a message held the round open


#: Settings that decide when messages are given out.
LIMITS: Final = frozenset(setting.name for setting in SETTINGS if setting.limits_claims)


class Flow:
    """`flow` of a queue: the state of its limits and of its circuit breaker; times are ms of the server's clock."""

    FULL_AT: Final = "full_at"  #: when the rate's bucket is full again
    LANES: Final = "lanes"  #: the limits of keys by which the lines of keys were looked at
    LANES_FROM: Final = "lanes_from"  #: after a change of these limits: the latest line that was looked at
    HELD_UNTIL: Final = "held_until"  #: nothing is given out before
    BREAKER: Final = "breaker"  #: open or half_open; absent while it is closed
    BREAKER_UNTIL: Final = "breaker_until"  #: when the next probe is given out
    PROBER: Final = "prober"  #: the consumer that has the probe
    BREAKER_FOR: Final = "breaker_for"  #: ms for which it is open
    BREAKER_SINCE: Final = "breaker_since"  #: when the counting of runs began
    BREAKER_PASSED: Final = "breaker_passed"
    BREAKER_FAILED: Final = "breaker_failed"
    WAITER: Final = "waiter"  #: the consumer that waits for messages; the others wait for `freed`
    WAITER_UNTIL: Final = "waiter_until"


Counter = counter_names.Counter  #: `counters` of a queue


class Topics:
    """`reliq:topics`, beside a field "queue pattern" for each binding."""

    VERSION: Final = "version"  #: changes with the bindings
    ALTERNATE: Final = "alternate"  #: the queue for messages that match no binding
    UNROUTABLE: Final = "unroutable"  #: number of messages without a queue


class Job:
    """The record of a staged job."""

    STATE: Final = "state"
    RUN: Final = "run"
    MANIFEST: Final = "manifest"  #: the parts that were committed
    MESSAGES: Final = "messages"  #: how many were committed
    REMEMBER: Final = "remember"  #: ms that the record is kept once the job is done
    OPENED: Final = "opened"  #: ms since the epoch
    STAGED: Final = "staged"  #: how many were staged, also by attempts that are not committed
    ADMITTED: Final = "admitted"  #: ms since the epoch up to which its rate has given its bytes out
    ROLLED: Final = "rolled"  #: how many became visible
    COMMITTED: Final = "committed"  #: ms since the epoch
    ABOUT: Final = "about"  #: JSON, what the job has written
    DURABILITY: Final = "durability"  #: that its commit is to have; absent: in memory
    #: How many were left out for their dedup key: a field for each queue, with its name behind a space.
    DEDUPLICATED: Final = "deduplicated"


class Batch:
    """The record of a batch that has not ended. Beside these, a field "queue NAME" for each of its queues."""

    STATE: Final = "state"  #: open, closed, or abandoned: nothing is sent at its end
    OPENED: Final = "opened"  #: ms since the epoch
    DONE: Final = "done"  #: the message to send when all messages have ended
    DEAD: Final = "dead"  #: the message to send instead if some have died
    JOB: Final = "job"  #: the staged job with its messages: keys, name and run, with blanks between
    PARENT: Final = "parent"  #: the batch that waits for this one
    CHILDREN: Final = "children"  #: how many batches it waits for
    CHILDREN_HANDLED: Final = "children_handled"  #: how many messages of ended ones were handled
    CHILDREN_DEAD: Final = "children_dead"  #: how many of these have died
    CHILDREN_CANCELLED: Final = "children_cancelled"  #: how many of these were cancelled
    ENDING: Final = "ending"  #: its counts at the end, once and for all: sent, dead, cancelled
    SENT: Final = "sent"  #: present once the message at the end was sent


class FlowRecord:
    """The record of a flow. Beside these, a field mNUMBER for each member, and eNUMBER for what has become of it; cID
    for a flow that the handler of a member has opened, and lNUMBER for each last member of such a flow.
    """

    STATE: Final = "state"  #: sending, open, ended, cancelled, or abandoned: its producer is gone
    OPENED: Final = "opened"  #: ms since the epoch
    SIZE: Final = "size"  #: how many members it has
    LEFT: Final = "left"  #: how many of them have not ended
    BY: Final = "by"  #: which producer sends it
    PARENT: Final = "parent"  #: queue and id of the message whose handler has opened it
    DROPPED: Final = "dropped"  #: present once the members are given up, of a cancelled or abandoned one
    HELD: Final = "held"  #: present until the members that wait for no others are let go
    UNTOLD: Final = "untold"  #: present if members ended while it was sent, until those behind them are told
    JOINED: Final = "joined"  #: present once that message knows how it ended
    REST: Final = "rest"  #: how many of its last members have not ended
    DEADS: Final = "deads"  #: how many of them are dead letters
    FAILED: Final = "failed"  #: how many of them have failed otherwise


class Prepared:
    """The record of a prepared message."""

    STATE: Final = "state"
    ELEMENT: Final = "element"
    DELAY: Final = "delay"  #: ms
    DEDUP: Final = "dedup"  #: the key of its deduplication key
    WINDOW: Final = "window"  #: ms
    DIGEST: Final = "digest"
    EVERY: Final = "every"  #: ms between two questions about it
    ASKS: Final = "asks"  #: questions asked so far
    MOST: Final = "most"  #: the most questions to ask
    FIRST: Final = "first"  #: once it is committed: its id, or for a duplicate the id of the first message


class Report:
    """What a handler has reported about a message."""

    TAG: Final = "tag"  #: of the push of the message that it had
    SENT: Final = "sent"  #: ms at which the message was sent; a former version has none
    AT: Final = "at"  #: ms since the epoch
    FRACTION: Final = "fraction"  #: from 0 to 1
    TEXT: Final = "text"
    STATE: Final = "state"  #: MessagePack


class ClockJump:
    """`reliq:monitor:clock`: the latest jump of the server's clock."""

    AT: Final = "at"  #: ms since the epoch
    BY: Final = "by"  #: ms
