"""What PySpark before 4.2 lacks is refused in words; `make test-spark-matrix` runs this with the real ones."""

import pyspark
import pytest

from reliq.errors import InvalidSetting
from reliq.spark import register

LINE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def test_pyspark_before_4_1_is_refused_before_it_touches_the_session(monkeypatch):
    if LINE >= (4, 1):
        monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises(InvalidSetting, match=r"needs PySpark 4\.1 or newer, this is (4\.0|3\.5)\.\d+: .*install"):
        register(None)  # type: ignore[arg-type]


@pytest.mark.skipif(LINE < (4, 1), reason="this PySpark is refused altogether")
def test_reading_a_queue_as_a_stream_is_refused_before_4_2(monkeypatch):
    from reliq.spark import source

    if LINE >= (4, 2):
        monkeypatch.setattr(source, "DataSourceStreamReader", object)
        monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    reader = source.ReliqDataSource({"queue": "orders", "url": "redis://127.0.0.1"})
    with pytest.raises(InvalidSetting, match=r"needs PySpark 4\.2 or newer, this is 4\.1\.\d+; all else works"):
        reader.streamReader(reader.schema())
