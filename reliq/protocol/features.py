"""What features let the core's steps do with their messages.

The core imports no feature: these lists are empty until reliq.slices, which `import reliq` runs, has filled them.
"""

from collections.abc import Callable, Collection, Mapping

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.protocol.act import Act
from reliq.protocol.along import Along
from reliq.protocol.counted import Counted
from reliq.protocol.hidden import Hidden
from reliq.protocol.job_ends import JobEnd
from reliq.protocol.notes import Notes

HIDDEN: list[Hidden] = []
COUNTED: list[Counted] = []
#: What features note about queues outside of them.
NOTES: list[Notes] = []
#: Who knows whether a message that is nowhere was handled.
HANDLED: list[Callable[[QueueKeys, str], Steps[bool]]] = []
#: Cancel the messages of a home with all of these headers, wherever they are. May be repeated.
CANCELS: list[Callable[[QueueKeys, Mapping[str, str]], Steps[None]]] = []
#: Delete what is kept for settings of a queue that were reset.
FORGETS: list[Callable[[QueueKeys, Collection[str]], Steps[None]]] = []
JOB_ENDS: list[JobEnd] = []
ACTS: list[Act] = []
#: The push of a message about which a handler has stored something: one that gets on is no poison.
TAGS: list[Callable[[QueueKeys, str], Op[str | None]]] = []
#: What belongs to messages that a monitor takes to another home.
ALONG: list[Along] = []
#: What the first home keeps for messages that have not come: a new one gets it before it takes messages.
EARLY: list[Callable[[QueueKeys, QueueKeys], Steps[None]]] = []
