"""Names of jobs as Redis has them, and the ids that are made of them."""

import hashlib
import re

from reliq.errors import InvalidSetting
from reliq.model.keys import SEVERAL, JobKeys, check_job

_LONGEST_PREFIX = 128 - len("-2147483648-999999999999")  #: an id has 128 characters, with partition and row
_LONGEST_APPLICATION = 40
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")


def job_name(home: JobKeys, application: str, job: str) -> str:
    """Return the name of a job's record: that of a job for several queues has the application before it.

    Raises InvalidName, and InvalidSetting if the application is unknown.
    """
    check_job(job)
    if home != SEVERAL:
        return job  # the queue has its own names
    if not application:
        raise InvalidSetting(
            f"job {job} is for several queues, where other applications have jobs too: name the application: "
            '.option("application", "shop"); reliq.spark.register(spark) takes the name of the Spark application'
        )
    return check_job(f"{_plain(application)}@{job}")


def of_transaction(application: str, version: int) -> str:
    """Return what the name of the job of a transaction begins with, and the ids of its rows."""
    return f"{_plain(application)}.{version}"


def _plain(application: str) -> str:
    """Return the application in the letters of a job's name; a digest tells what is shortened or replaced apart."""
    plain = _FOREIGN.sub("-", application)
    if plain == application and len(plain) <= _LONGEST_APPLICATION:
        return plain
    digest = hashlib.blake2b(application.encode(), digest_size=4).hexdigest()
    return f"{plain[: _LONGEST_APPLICATION - 1 - len(digest)]}-{digest}"


def id_prefix(job: str) -> str:
    """Return what the ids of a job's rows begin with: its name, or for a long one its beginning and a digest."""
    if len(job) <= _LONGEST_PREFIX:
        return job
    digest = hashlib.blake2b(job.encode(), digest_size=8).hexdigest()
    return f"{job[: _LONGEST_PREFIX - 1 - len(digest)]}~{digest}"  # no name of a job has a ~
