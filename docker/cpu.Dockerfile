# Serves plans on CPUs:
#   docker build -f docker/cpu.Dockerfile -t tensoropt-serve .
#   docker run --rm -p 8000:8000 -p 8001:8001 --shm-size 1g -v $PWD/plan:/models/plan:ro tensoropt-serve /models/plan
FROM python:3.13-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
# What a machine needs that only runs plans: no MLIR, no matplotlib.
RUN python -m venv /opt/tensoropt \
    && /opt/tensoropt/bin/pip install --no-cache-dir '/source[runtime-cpu,serve,text]'

FROM python:3.13-slim
COPY --from=build /opt/tensoropt /opt/tensoropt
RUN useradd --system --create-home --uid 10001 tensoropt
USER 10001
WORKDIR /home/tensoropt
ENV PATH=/opt/tensoropt/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen(open('/tmp/tensoropt-addresses').readline().strip() + '/v2/health/ready', timeout=4)"]
ENTRYPOINT ["tensoropt-serve", "--address-file", "/tmp/tensoropt-addresses", "--host", "0.0.0.0"]
