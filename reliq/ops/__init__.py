"""Transitions as values: which script, which keys, which arguments, and how to read the reply. No I/O.

Longer protocols are generators ("steps"): they yield requests and are sent the replies. `transport` runs them, so the
synchronous client, the asyncio client and the model checker in tests/model_checking run the same code.
"""

from reliq.ops.browse import *
from reliq.ops.commands import *
from reliq.ops.consumer import *
from reliq.ops.flow_control import *
from reliq.ops.jobs import *
from reliq.ops.life import *
from reliq.ops.monitor import *
from reliq.ops.operator import *
from reliq.ops.partitions import *
from reliq.ops.policy import *
from reliq.ops.producer import *
from reliq.ops.queue_scan import *
from reliq.ops.request import *
from reliq.ops.service import *
from reliq.ops.stats import *
