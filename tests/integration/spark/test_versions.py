"""What PySpark 4.0 and 4.1 lack is refused in words; `make test-spark-matrix` runs this with the real ones."""

import pyspark
import pytest

from reliq.errors import InvalidSetting
from reliq.spark import register, source
from reliq.spark.source import ReliqDataSource

LINE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def test_pyspark_4_0_is_refused_before_it_touches_the_session(monkeypatch):
    if LINE >= (4, 1):
        monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises(InvalidSetting, match=r"needs PySpark 4\.1 or newer, this is 4\.0\.\d+: .*install"):
        register(None)  # type: ignore[arg-type]


@pytest.mark.skipif(LINE < (4, 1), reason="PySpark 4.0 is refused altogether")
def test_reading_a_queue_as_a_stream_is_refused_before_4_2(monkeypatch):
    if LINE >= (4, 2):
        monkeypatch.setattr(source, "DataSourceStreamReader", object)
        monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    reader = ReliqDataSource({"queue": "orders", "url": "redis://127.0.0.1"})
    with pytest.raises(InvalidSetting, match=r"needs PySpark 4\.2 or newer, this is 4\.1\.\d+; all else works"):
        reader.streamReader(reader.schema())
