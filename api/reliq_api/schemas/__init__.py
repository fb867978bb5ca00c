"""The schemas of requests and answers, for OpenAPI."""

from reliq_api.schemas.base import *
from reliq_api.schemas.dead_letters import *
from reliq_api.schemas.leases import *
from reliq_api.schemas.messages import *
from reliq_api.schemas.problems import *
from reliq_api.schemas.queues import *
from reliq_api.schemas.workers import *
