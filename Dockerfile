# The hub of a team: `backstory serve --hub`. docker-compose.yml runs it beside ClickHouse.
FROM python:3.13-slim
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt '.[clickhouse]' && rm -rf /src/*

RUN useradd --create-home --uid 1000 backstory && install -d -m 700 -o backstory /data
USER backstory
ENV BACKSTORY_HOME=/data
VOLUME /data
EXPOSE 7717
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7717/health', timeout=4)"]
CMD ["backstory", "serve", "--hub", "--host", "0.0.0.0"]
