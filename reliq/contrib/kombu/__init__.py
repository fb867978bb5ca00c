"""kombu, and with it Celery, on reliq: `broker_url = "reliq+redis://localhost:6379/0"`.

Importing this module registers the transport. Without an import it has the dotted path `reliq.contrib.kombu:Transport`.
"""

try:
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.kombu", "celery", error) from None

from reliq.contrib.kombu.channel import Channel
from reliq.contrib.kombu.options import SCHEMES
from reliq.contrib.kombu.transport import Transport

__all__ = ["Channel", "Transport"]

for _name in ("reliq", *(f"reliq+{scheme}" for scheme in SCHEMES)):
    TRANSPORT_ALIASES.setdefault(_name, "reliq.contrib.kombu:Transport")
