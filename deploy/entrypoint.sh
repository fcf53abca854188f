#!/bin/sh
# Starts one process of a deployment: gateway, console, worker, beat or migrate. Anything else is a manage.py command.
set -eu
cd "$(dirname "$0")/.."

serve() {
    exec python -m gateway.door.server --host "${BIND:-0.0.0.0}" --port "${PORT:-8000}" \
        --workers "${WEB_PROCESSES:-1}" --notice "${STOP_NOTICE_SECONDS:-5}" --drain "${STOP_DRAIN_SECONDS:-30}"
}

case "${1:-}" in
gateway)
    export SERVE=gateway DATABASE_ROLE=app
    serve
    ;;
console)
    export SERVE=console DATABASE_ROLE=console
    serve
    ;;
worker)
    export DATABASE_ROLE=app
    exec python -m celery -A gateway.celery worker --concurrency "${WORKER_CONCURRENCY:-2}"
    ;;
beat)
    export DATABASE_ROLE=app
    exec python -m celery -A gateway.celery beat --pidfile= \
        --schedule "${BEAT_SCHEDULE:-/var/lib/meterline/beat-schedule}"
    ;;
migrate)
    exec python manage.py migrate --noinput
    ;;
'')
    echo "usage: $0 gateway|console|worker|beat|migrate|<manage.py command>" >&2
    exit 2
    ;;
*)
    exec python manage.py "$@"
    ;;
esac
