# biorag[starter] on a CPU. docs/install.md says how to build and run it.
FROM python:3.12.11-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
# An address of PyTorch's wheels for CPUs; without it pip takes what the default index has, several gigabytes of CUDA.
ARG TORCH_INDEX=""
# AVX2 rather than what the building machine happens to have: the image runs on other machines too.
ENV CMAKE_ARGS="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/biorag
WORKDIR /source
COPY constraints.txt ./
RUN /opt/biorag/bin/pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY . ./
RUN /opt/biorag/bin/pip install --constraint constraints.txt '.[starter]' \
    && /opt/biorag/bin/pip uninstall --yes pip

FROM python:3.12.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=10001 --group=10001 /data /work
COPY --from=build /opt/biorag /opt/biorag
# All that biorag writes is below /data; /work is where corpora and outputs are mounted.
ENV BIORAG_HOME=/data HOME=/data/user PATH=/opt/biorag/bin:$PATH PYTHONDONTWRITEBYTECODE=1
VOLUME /data
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["biorag"]
CMD ["--help"]
