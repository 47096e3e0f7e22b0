# The worker for NVIDIA GPUs (driver 580 or newer). From the root of the repository: `scripts/image cuda`, or
#   docker build -f deploy/docker/cuda.Dockerfile -t enricher:0.1.0-cuda .
# What is in it, how large it is and how to bring a model of your own: deploy/docker/README.md.

# ---- packages: the locked dependencies, in a virtual environment without pip
FROM python:3.11-slim-bookworm AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off
RUN python3 -m venv --without-pip /opt/enricher
COPY scripts/locked/runtime-cuda.txt /build/lock.txt
# Two optional secrets, for an index and a certificate authority of your own: they are in no layer.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca \
    python3 -m pip --python /opt/enricher/bin/python install --require-hashes --only-binary :all: --no-compile \
      -r /build/lock.txt

# ---- lean: the same as it ships, without what only builds. A program that cannot write cannot keep bytecode, so it is
# compiled here, and never compared with its source again; of transformers' 400 families only those that can be loaded.
FROM packages AS lean
COPY deploy/docker/keep_cuda_libraries.py /build/
# OpenVINO is for processors. CUDA's libraries go apart, into layers that stay as they are while programs change.
RUN python3 -m pip --python /opt/enricher/bin/python uninstall --yes --quiet setuptools openvino openvino-telemetry \
 && python3 /build/keep_cuda_libraries.py /opt/enricher/lib/python3.11/site-packages \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/enricher/lib \
      -x 'transformers/models/(?!(auto|bert|camembert|distilbert|electra|encoder_decoder|roberta|xlm_roberta)/)' \
 && find /opt/enricher -exec touch --no-dereference --date=@0 {} + \
 && mv /opt/enricher/lib/python3.11/site-packages/nvidia /build/nvidia

# ---- program: this project, laid out as it goes over `lean`, with the graphs of its model
FROM packages AS program
COPY pyproject.toml README.md LICENSE /build/program/
COPY enricher /build/program/enricher
COPY deploy/docker/bake_graphs.py /build/
# No index: the build's own requirements are in the lock.
RUN python3 -m pip --python /opt/enricher/bin/python install --no-index --no-deps --no-build-isolation --no-compile \
      --prefix /build/layer/opt/enricher /build/program \
 && PYTHONPATH=/build/layer/opt/enricher/lib/python3.11/site-packages PYTHONDONTWRITEBYTECODE=1 \
      /opt/enricher/bin/python /build/bake_graphs.py cuda \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /build/layer/opt/enricher/lib \
 && find /build/layer -exec touch --no-dereference --date=@0 {} +

# ---- what ships
FROM python:3.11-slim-bookworm
# Numbers, so that Kubernetes can see that it is not root. It owns the folder for graphs of other models and nothing else.
RUN groupadd --gid 65532 enricher \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin enricher \
 && install --directory --owner=65532 --group=65532 /var/cache/enricher
COPY --from=lean /build/nvidia/cu13 /opt/enricher/lib/python3.11/site-packages/nvidia/cu13
COPY --from=lean /build/nvidia/cudnn /opt/enricher/lib/python3.11/site-packages/nvidia/cudnn
COPY --from=lean /opt/enricher /opt/enricher
COPY --from=program /build/layer/opt/enricher /opt/enricher
# ONNX Runtime otherwise writes an identifier of the machine into HOME, and reports sessions and models to its makers.
# NVIDIA_VISIBLE_DEVICES is left to who runs it: `all` here would show every GPU to pods that asked for none.
ENV PATH=/opt/enricher/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    ENRICHER_MODEL__CACHE_DIR=/var/cache/enricher \
    ENRICHER_MODEL__DEVICE=cuda \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA=cuda>=13.0
WORKDIR /tmp
USER 65532:65532
# Metrics, and probes. No HEALTHCHECK: Kubernetes ignores it, and asks /livez, /readyz and /startupz, which differ.
EXPOSE 8080 8180
# The worker drains on SIGTERM. Python is process 1: it has no children but those of --processes, which it waits for.
STOPSIGNAL SIGTERM
ENTRYPOINT ["enricher"]
CMD ["run"]
LABEL org.opencontainers.image.title="enricher" \
      org.opencontainers.image.description="Articles in, entities out, exactly once: a streaming NER worker from Kafka to Kafka. For NVIDIA GPUs." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0 AND CC-BY-SA-4.0 AND CC-BY-SA-3.0 AND CC-BY-2.5 AND LicenseRef-NVIDIA-CUDA-EULA AND LicenseRef-NVIDIA-cuDNN" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"
