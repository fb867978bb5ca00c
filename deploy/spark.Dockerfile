# A Spark driver with reliq. Build from the repository's root: docker build -f deploy/spark.Dockerfile -t reliq-spark .
FROM python:3.12.8-slim-bookworm@sha256:2199a62885a12290dc9c5be3ca0681d367576ab7bf037da120e564723292a2f0 AS build
WORKDIR /src
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY reliq reliq
COPY monitor/reliq_monitor monitor/reliq_monitor
COPY api/reliq_api api/reliq_api
COPY api/reliq_sqs api/reliq_sqs
RUN python -m venv /opt/reliq
RUN /opt/reliq/bin/pip install --no-cache-dir '.[spark]'

FROM python:3.12.8-slim-bookworm@sha256:2199a62885a12290dc9c5be3ca0681d367576ab7bf037da120e564723292a2f0
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin reliq
COPY --from=build /opt/reliq /opt/reliq
ENV PATH=/opt/reliq/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["python", "/app/spark_job.py"]
