"""Spark looks for packages with a name like this one, so that every session has the format "reliq".

It has the server of RELIQ_URL, or of the option `connection`; `reliq.spark.register` gives a session more.
"""

from contextlib import suppress

from reliq.errors import InvalidSetting

with suppress(InvalidSetting):  # an error here would take all other formats in Python away
    from reliq.spark import check_pyspark

    check_pyspark()
    from reliq.spark.source import ReliqDataSource as DefaultSource  # noqa: F401
