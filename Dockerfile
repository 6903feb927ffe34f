# The service, and a worker for GPU nodes. Every package is checked against the hashes of the lock files; what only
# tests need is not installed.
#
#     docker build --target service --tag gemmtune .
#     docker build --target worker --tag gemmtune-worker .

FROM python:3.12-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1

# Wheels of everything that is locked, and our own.
FROM base AS wheels
WORKDIR /src
COPY requirements.lock ./
RUN pip download --quiet --require-hashes --only-binary=:all: --dest /wheels --requirement requirements.lock \
    && pip install --quiet --no-index --find-links /wheels hatchling
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY gemmtune gemmtune
COPY recorded recorded
COPY space space
COPY tuner tuner
COPY workers workers
RUN pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheels .

# The same, and the library that GPU nodes compare with.
FROM wheels AS gpu-wheels
COPY requirements-gpu.lock ./
RUN pip download --quiet --require-hashes --only-binary=:all: --find-links /wheels --dest /wheels \
    --requirement requirements-gpu.lock

FROM base AS installed
RUN useradd --uid 10001 --create-home gemmtune \
    && install --directory --owner gemmtune /var/cache/gemmtune /var/lib/gemmtune
ENV GEMMTUNE_CACHE_DIR=/var/cache/gemmtune GEMMTUNE_MODEL_DIR=/var/lib/gemmtune/models \
    GEMMTUNE_DB=/var/lib/gemmtune/gemmtune.db
ENTRYPOINT ["gemmtune"]

FROM installed AS worker
RUN --mount=type=bind,from=gpu-wheels,source=/wheels,target=/wheels \
    pip install --quiet --no-index --find-links /wheels 'gemmtune[gpu]'
# The driver is the host's: the container toolkit brings its library in.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER gemmtune
CMD ["worker", "run"]

FROM installed AS service
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --quiet --no-index --find-links /wheels gemmtune
USER gemmtune
ENV GEMMTUNE_HOST=0.0.0.0
EXPOSE 8643
CMD ["serve"]
