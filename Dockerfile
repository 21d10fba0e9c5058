# Oncepool with the example shop. An application of your own is installed on top of it, or in its
# place: ONCEPOOL_APP names it.
FROM python:3.13-slim AS build

WORKDIR /build
COPY requirements.lock ./
# The lock also has what development needs: its versions are taken, not its list.
RUN python -m venv /opt/oncepool \
    && sed -e '/--hash/d' -e 's/ *\\$//' requirements.lock > constraints.txt \
    && /opt/oncepool/bin/pip install --no-cache-dir --constraint constraints.txt hatchling
COPY pyproject.toml README.md LICENSE ./
COPY consumer ./consumer
COPY processing ./processing
COPY feedback ./feedback
COPY stack ./stack
RUN /opt/oncepool/bin/pip install --no-cache-dir --constraint constraints.txt \
        --no-build-isolation '.[example,gateway,metrics]' \
    && /opt/oncepool/bin/pip uninstall --yes hatchling

FROM python:3.13-slim

# A number that manifests can name: Kubernetes knows no names of users.
RUN useradd --uid 10001 --create-home --home-dir /home/oncepool oncepool
COPY --from=build /opt/oncepool /opt/oncepool
ENV PATH=/opt/oncepool/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/oncepool
COPY examples ./examples
# The drain begins with SIGTERM; the exit code tells whether it was clean.
STOPSIGNAL SIGTERM
CMD ["oncepool", "run"]
