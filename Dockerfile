# Image of the watcher and the other parts. `make image` builds it with a version and a revision.
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# Install the dependencies before the project, so that a change of the project rebuilds only the last, small layer. Use
# only wheels, because the slim image has no compiler; without a wheel for a platform the build fails here with the
# package's name instead of in a C build. The exception is pyformance, a pure-Python dependency of signalfx without a
# wheel: it is built with the tools pinned in build.txt. The removed files take 160 MB: pip (a dependency of
# sqlite-utils for an unused command), the tests of numpy and scipy, the asynchronous copy of the Kubernetes client, and
# what only developers of pages need: source maps, the page's uncompressed program, extensions of JupyterLab.
COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv --without-pip /opt/trimaran && \
    pip install --require-hashes --only-binary :all: -r requirements/build.txt && \
    pip wheel --require-hashes --only-binary :all: --no-binary pyformance --no-build-isolation \
        --wheel-dir wheels -r requirements/run.txt && \
    pip --python /opt/trimaran/bin/python install --no-deps --no-index wheels/*.whl && \
    pip --python /opt/trimaran/bin/python uninstall --yes pip && \
    find /opt/trimaran -type d '(' -name tests -o -path '*/kubernetes/aio' -o -name labextension ')' \
        -prune -exec rm -r {} + && \
    find /opt/trimaran -type f '(' -path '*/dash/*.js.map' -o -name dash_renderer.dev.js ')' -delete && \
    rm -r wheels

COPY pyproject.toml README.md LICENSE ./
COPY trimaran trimaran
COPY watcher watcher
COPY client client
COPY scoring scoring
COPY runtime runtime
# --no-deps and no index: the lock above is complete, and no other package may be installed. The last line verifies that
# no needed file was removed.
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist . && \
    pip --python /opt/trimaran/bin/python install --no-deps --no-index dist/*.whl && \
    /opt/trimaran/bin/python -c "import client, trimaran.cluster, trimaran.dashboard.embedded, trimaran.extender.service, kubernetes.config, trimaran.soft_taints.service, scipy.special, scoring, trimaran.cli.simulate, trimaran.planning.methods, watcher.api.service"


# The same without the page for browsers, which takes a third of the packages.
FROM builder AS slim-builder
RUN pip --python /opt/trimaran/bin/python uninstall --yes comm dash importlib-metadata janus lazy-importer \
        narwhals nest-asyncio packaging plotly retrying setuptools zipp && \
    /opt/trimaran/bin/python -c "import trimaran.extender.service, trimaran.soft_taints.service, watcher.api.app"


FROM python:${PYTHON_VERSION}-slim AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trimaran" \
      org.opencontainers.image.description="Load-aware placement for Kubernetes: watches the actual use of nodes and serves it to schedulers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Group 0 may write too: platforms that assign the user (OpenShift) run the image with that group.
RUN install --directory --owner=65532 --group=0 --mode=0770 /var/lib/trimaran

# The root file system may be read-only: the bytecode was compiled in the builder, and the process writes only to the
# volume and to /dev/shm, for the server's heartbeat.
ENV PATH=/opt/trimaran/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TRIMARAN_SERVER__HOST=:: \
    TRIMARAN_STORE__PATH=/var/lib/trimaran/watcher.sqlite \
    TRIMARAN_LOG__FORMAT=json \
    TRIMARAN_WATCHER_ADDRESS=http://127.0.0.1:2020
WORKDIR /var/lib/trimaran
VOLUME /var/lib/trimaran
EXPOSE 2020

# A number, so that Kubernetes can verify that it is not root (runAsNonRoot).
USER 65532:65532

# http.client, because urllib would use the proxy of the environment. The certificate is not issued for 127.0.0.1.
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s --retries=3 CMD ["python", "-c", "\
import http.client, os, ssl; \
port = int(os.environ.get('TRIMARAN_SERVER__PORT') or 2020); \
secured = os.environ.get('TRIMARAN_SERVER__CERTIFICATE'); \
watcher = http.client.HTTPSConnection('127.0.0.1', port, timeout=4, context=ssl._create_unverified_context()) \
    if secured else http.client.HTTPConnection('127.0.0.1', port, timeout=4); \
watcher.request('GET', '/livez'); \
raise SystemExit(watcher.getresponse().status != 200)"]

ENTRYPOINT ["trimaran"]
CMD ["watch"]


# `docker build --target slim`: for pods that serve no page.
FROM base AS slim
ENV TRIMARAN_DASHBOARD__ENABLED=false
COPY --from=slim-builder /opt/trimaran /opt/trimaran


FROM base
COPY --from=builder /opt/trimaran /opt/trimaran
