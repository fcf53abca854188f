# One image for every process of a deployment; the first argument says which (see deploy/entrypoint.sh).

FROM python:3.13-slim AS packages
COPY requirements.lock .
# Wheels alone, each checked against its hash: nothing is built, no set-up script runs.
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r requirements.lock

FROM python:3.13-slim
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SPOOL_DIR=/var/spool/meterline \
    STATIC_ROOT=/app/static
# The numbers are fixed, so that a volume keeps its owner from image to image.
RUN groupadd --gid 10001 meterline \
    && useradd --uid 10001 --gid meterline --no-create-home --home-dir /nonexistent meterline \
    && install -d -o meterline -g meterline -m 700 /var/spool/meterline /var/lib/meterline \
        /var/lib/meterline/exports
COPY --from=packages /venv /venv
WORKDIR /app
COPY . .
RUN python -m compileall -q /app && python manage.py collectstatic --noinput
USER meterline
EXPOSE 8000
ENTRYPOINT ["/app/deploy/entrypoint.sh"]
CMD ["gateway"]
