"""Settings: everything a deployment says through its environment. What operators tune daily lives in rows instead.

`SERVE` decides what a web process answers: `gateway` (the API), `console` (the admin) or `all`. `DATABASE_ROLE` decides
as whom Django's ORM speaks in this process: `owner` (migrations, manage.py), `app` (worker, beat) or `console` (console
requests). The API's own connections always speak as `app`, whatever the ORM does.
"""

import json
import time
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import environ
from django.utils.translation import gettext_lazy

from gateway.wire.dialects import DIALECTS as ROWS

env = environ.Env()
BASE_DIR = Path(__file__).resolve().parent.parent

# --- what a deployment must say -------------------------------------------------------------------------------------
DEBUG = env.bool("DEBUG", default=False)
# The defaults below are for `manage.py` commands that touch no secret; gateway.checks refuses them when serving.
SECRET_KEY = env.str("SECRET_KEY", default="")
KEY_PEPPERS: list[str] = env.list("KEY_PEPPERS", default=[])
SEALING_KEYS: list[str] = env.list("SEALING_KEYS", default=[])
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SERVE = env.str("SERVE", default="all")

# --- engines --------------------------------------------------------------------------------------------------------
DATABASE_URL = env.str("DATABASE_URL", default="postgres://localhost/meterline")
REDIS_URL = env.str("REDIS_URL", default="redis://localhost:6379/0")
DATABASE_ROLE = env.str("DATABASE_ROLE", default="console")


def role_url(name: str, role: str) -> str:
    """The URL of a database role: its own variable, or the owner's URL with `SET ROLE` at connect time."""
    given: str = env.str(name, default="")
    if given:
        return given
    joint = "&" if "?" in DATABASE_URL else "?"
    return f"{DATABASE_URL}{joint}options={quote(f'-c role={role}')}"


DATABASE_APP_URL = role_url("DATABASE_APP_URL", "meterline_app")
DATABASE_CONSOLE_URL = role_url("DATABASE_CONSOLE_URL", "meterline_console")
# How many connections a process that serves the API has at most, by what they are for: holds and settlements; reads of
# the books; files; and its own errands (unknown keys, what it shares with the others, how the database is). One more
# listens for changes. A process that serves the console has one for each request to it.
DATABASE_PAID_CONNECTIONS = env.int("DATABASE_PAID_CONNECTIONS", default=6)
DATABASE_READ_CONNECTIONS = env.int("DATABASE_READ_CONNECTIONS", default=4)
DATABASE_FILE_CONNECTIONS = env.int("DATABASE_FILE_CONNECTIONS", default=2)
DATABASE_ERRAND_CONNECTIONS = env.int("DATABASE_ERRAND_CONNECTIONS", default=3)
CONSOLE_REQUESTS = env.int("CONSOLE_REQUESTS", default=8)
# How long a read waits for one, and how many reads of a key wait at once (of an organization: four times as many).
DATABASE_READ_SECONDS = env.float("DATABASE_READ_SECONDS", default=2.0)
DATABASE_READS_WAITING = env.int("DATABASE_READS_WAITING", default=256)
CONSOLE_SECONDS = env.float("CONSOLE_SECONDS", default=10.0)
# How long a request waits for its hold: at least, and at most when commits are slow.
HOLD_SECONDS = env.float("HOLD_SECONDS", default=0.5)
HOLD_SECONDS_MOST = env.float("HOLD_SECONDS_MOST", default=1.8)
# What the console's statements may take, and how long it may leave a transaction open: one that stays open keeps the
# database from clearing away what every request leaves behind.
CONSOLE_STATEMENT_SECONDS = env.int("CONSOLE_STATEMENT_SECONDS", default=30)
IDLE_TRANSACTION_SECONDS = env.int("IDLE_TRANSACTION_SECONDS", default=30)


def orm_database() -> dict[str, object]:
    """The ORM's connection, as the role that `DATABASE_ROLE` says; an owner's has no bounds."""
    url = {"owner": DATABASE_URL, "app": DATABASE_APP_URL, "console": DATABASE_CONSOLE_URL}[DATABASE_ROLE]
    found: dict[str, object] = env.db_url_config(url)
    bounds = {}
    if DATABASE_ROLE != "owner":
        bounds["idle_in_transaction_session_timeout"] = IDLE_TRANSACTION_SECONDS
    if DATABASE_ROLE == "console":
        bounds["statement_timeout"] = CONSOLE_STATEMENT_SECONDS
    options = dict(found.get("OPTIONS") or {})  # type: ignore[call-overload]
    words = [options.get("options", ""), *(f"-c {name}={seconds}s" for name, seconds in bounds.items())]
    if DATABASE_ROLE == "console":
        words.append("-c jit=off")  # a page is over before its statements' expressions are compiled
    options["options"] = " ".join(filter(None, words))
    return {
        **found,
        "OPTIONS": options,
        "CONN_MAX_AGE": 0 if DATABASE_ROLE == "console" else 60,
        "ATOMIC_REQUESTS": DATABASE_ROLE == "console",
    }


DATABASES = {"default": orm_database()}

# --- the API --------------------------------------------------------------------------------------------------------
SPOOL_DIR = Path(env.str("SPOOL_DIR", default=str(BASE_DIR / ".run" / "spool")))
# Below which folder schedules may store exports; empty: they store them in buckets alone.
EXPORT_DIR = Path(env.str("EXPORT_DIR")) if env.str("EXPORT_DIR", default="") else None
# Exact `scheme://host:port` entries that may be dialled besides public https addresses. Empty means none.
EGRESS_ALLOW: list[str] = env.list("EGRESS_ALLOW", default=[])
# Where the price list is fetched from, as `genai-prices` publishes it, and in how many hours again by itself; 0: never.
PRICES_URL = env.str(
    "PRICES_URL",
    default="https://raw.githubusercontent.com/pydantic/genai-prices/refs/heads/main/prices/new_data/v2/data.json",
)
PRICES_HOURS = env.int("PRICES_HOURS", default=0)
# How many requests of one key a process works on that are not held for yet; 0: any number.
KEY_REQUESTS_UNDER_WAY = env.int("KEY_REQUESTS_UNDER_WAY", default=1000)
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=32 * 1024 * 1024)
# Bytes that a process keeps for all its callers together: bodies, files on their way, answers that were not read yet.
MEMORY_BYTES = env.int("MEMORY_BYTES", default=512 * 1024 * 1024)
# Uploaded files: bytes of one (its form passes MAX_BODY_BYTES besides), of a project's together, and for how many days
# they are kept (0: until they are deleted).
FILES_MAX_BYTES = env.int("FILES_MAX_BYTES", default=32 * 1024 * 1024)
FILES_PROJECT_BYTES = env.int("FILES_PROJECT_BYTES", default=1024 * 1024 * 1024)
# What a project may upload in an hour, deleted or not; 0: as much as it likes.
FILES_PROJECT_HOURLY_BYTES = env.int("FILES_PROJECT_HOURLY_BYTES", default=2 * 1024 * 1024 * 1024)
FILES_RETENTION_DAYS = env.int("FILES_RETENTION_DAYS", default=30)
# What is kept of prompts and answers where a project wants that: days at most (0: never), bytes of each side of one
# generation, and bytes of an organization in a day (UTC), sealed.
PAYLOAD_DAYS_MOST = env.int("PAYLOAD_DAYS_MOST", default=30)
PAYLOAD_BYTES = env.int("PAYLOAD_BYTES", default=256 * 1024)
PAYLOAD_ORGANIZATION_BYTES = env.int("PAYLOAD_ORGANIZATION_BYTES", default=1024 * 1024 * 1024)
# What an organization may have kept of answers to requests with an Idempotency-Key in 24 hours; 0: as much as it likes.
IDEMPOTENCY_ORGANIZATION_BYTES = env.int("IDEMPOTENCY_ORGANIZATION_BYTES", default=1024 * 1024 * 1024)
# How often a key may read each management endpoint in a minute; 0: as often as it likes.
MANAGEMENT_READS_A_MINUTE = env.int("MANAGEMENT_READS_A_MINUTE", default=600)
# Answers whose clients have left, read on for what the provider counts: how many at a time in a process, and for how
# many seconds each, where the key does not say otherwise.
DRAINS_AT_ONCE = env.int("DRAINS_AT_ONCE", default=200)
DRAIN_SECONDS = env.float("DRAIN_SECONDS", default=120)
# Of what somebody else than who drafted it has to approve: price, budget, limit, policy, repricing.
SECOND_PERSON: list[str] = env.list("SECOND_PERSON", default=[])
# Where the API is, as the console reaches it for a test request; empty: in the console's own process, if it is there.
GATEWAY_URL = env.str("GATEWAY_URL", default="")
# Who provides and bills, as statements and FOCUS files name them.
ISSUER_NAME = env.str("ISSUER_NAME", default="Meterline")
# What a scrape of /metrics must bear. Without it only this machine may scrape, and nobody through a proxy.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")
# The dialects that rows may name, and the one for answers to nobody: before a key is known to be good.
DIALECTS = tuple(ROWS)
DEFAULT_DIALECT = env.str("DEFAULT_DIALECT", default="standard")
# Origins whose pages may call the API from a browser; `*` is any. A key is never sent by a browser on its own.
CORS_ALLOW_ORIGINS: list[str] = env.list("CORS_ALLOW_ORIGINS", default=["*"])
# What the gateway calls its build where a dialect names it: YYYYMMDD-HHMMSS, by default its newest file's, in UTC.
BUILD = env.str("BUILD", default="") or time.strftime(
    "%Y%m%d-%H%M%S", time.gmtime(max(file.stat().st_mtime for file in (BASE_DIR / "gateway").rglob("*.py")))
)
# Where clients reach the API, as scheme://host[:port]: the console's pages tell it, and the playground calls it. Empty:
# where the console is, if the same processes serve both.
PUBLIC_URL = env.str("PUBLIC_URL", default="").rstrip("/")
# The catalog of models is for everybody: at the list's prices, without who sells what.
PUBLIC_CATALOG = env.bool("PUBLIC_CATALOG", default=False)
# What a person's key of the console's playground may spend in a day, in dollars.
PLAYGROUND_DOLLARS = Decimal(env.str("PLAYGROUND_DOLLARS", default="1"))
# How many reverse proxies in front append to X-Forwarded-For. 0 means the socket's peer is the client.
TRUSTED_PROXY_HOPS = env.int("TRUSTED_PROXY_HOPS", default=0)

# --- Django ---------------------------------------------------------------------------------------------------------
ROOT_URLCONF = "gateway.urls"
ASGI_APPLICATION = "gateway.door.handler.application"
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = True
# Of the console. The API says what vendors say, in English.
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "gateway" / "locale"]
FORMAT_MODULE_PATH = "gateway.formats"
FORMAT_MODULE_PATH = "gateway.formats"

# A gateway alone loads no page of the console, nor Celery, to which its buttons send.
INSTALLED_APPS = [
    *(["django.contrib.admin.apps.SimpleAdminConfig"] if SERVE == "gateway" else []),
    *(["unfold", "unfold.contrib.filters", "django.contrib.admin"] if SERVE != "gateway" else []),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "accounts",
    "billing",
    "routing",
    "gateway",
]

# The console's alone: the API's lean handler runs no middleware.
MIDDLEWARE = [
    # First: also what goes wrong in those below is answered with them.
    "gateway.console.refusals.RequestId",
    "gateway.console.frame.SecurityHeaders",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "gateway.console.entering.Entering",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "gateway.console.sign_in.rules.SignInRules",
    "gateway.console.refusals.DatabaseRefusals",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

STATIC_URL = "static/"
# Where the image has collected the console's files. Without it they are served from the packages' own folders.
STATIC_ROOT = env.str("STATIC_ROOT", default=None)
WHITENOISE_USE_FINDERS = STATIC_ROOT is None

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}

# --- security of the console ----------------------------------------------------------------------------------------
# TLS ends at the proxy in front. Without one (make run, on loopback) cookies must travel over plain http.
INSECURE_COOKIES = env.bool("INSECURE_COOKIES", default=False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUSTED_PROXY_HOPS else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not INSECURE_COOKIES
SECURE_SSL_REDIRECT = not INSECURE_COOKIES and SERVE == "console"
SECURE_HSTS_SECONDS = 0 if INSECURE_COOKIES else 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not INSECURE_COOKIES
# The prefix has browsers refuse the cookie from anybody but this very host.
SESSION_COOKIE_NAME = "sessionid" if INSECURE_COOKIES else "__Host-sessionid"
CSRF_COOKIE_NAME = "csrftoken" if INSECURE_COOKIES else "__Host-csrftoken"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "gateway.console.refusals.forged"

# --- signing in to the console --------------------------------------------------------------------------------------
# Who must have a second factor: nobody (`optional`), `operators`, or everybody (`required`).
CONSOLE_SECOND_FACTOR = env.str("CONSOLE_SECOND_FACTOR", default="optional")
# Off: people come in by single sign-on or a passkey alone.
CONSOLE_PASSWORDS = env.bool("CONSOLE_PASSWORDS", default=True)
# Single sign-on by OpenID Connect: on where an issuer is named. Its groups give what OIDC_GROUPS says and nothing else:
# {"group": "operator", "finance", "auditor" or "role@organization", or a list of these}.
OIDC_ISSUER = env.str("OIDC_ISSUER", default="")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", default="")
OIDC_CLIENT_SECRET = env.str("OIDC_CLIENT_SECRET", default="")
OIDC_NAME = env.str("OIDC_NAME", default="single sign-on")
OIDC_SCOPES: list[str] = env.list("OIDC_SCOPES", default=["openid", "email", "profile"])
OIDC_GROUPS_CLAIM = env.str("OIDC_GROUPS_CLAIM", default="groups")
OIDC_GROUPS = json.loads(env.str("OIDC_GROUPS", default="") or "{}")
# The provider sees to a second factor itself; off: ours is asked for after it, where there is one or must be.
OIDC_PROVES_SECOND_FACTOR = env.bool("OIDC_PROVES_SECOND_FACTOR", default=False)

# --- Celery: statistics and housekeeping; money never waits for it --------------------------------------------------
CELERY_BROKER_URL = REDIS_URL
CELERY_WORKER_HIJACK_ROOT_LOGGER = False  # its lines are shaped as all others
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"

# --- mail: the budgets' alerts, invitations --------------------------------------------------------------------------
# Without a server none is sent, and each alert by mail says so.
EMAIL_HOST = env.str("EMAIL_HOST", default="")
EMAIL_PORT = env.int("EMAIL_PORT", default=25)
EMAIL_HOST_USER = env.str("EMAIL_HOST_USER", default="")
EMAIL_HOST_PASSWORD = env.str("EMAIL_HOST_PASSWORD", default="")
EMAIL_USE_TLS = env.bool("EMAIL_USE_TLS", default=False)
EMAIL_USE_SSL = env.bool("EMAIL_USE_SSL", default=False)
EMAIL_TIMEOUT = env.int("EMAIL_TIMEOUT", default=10)
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="meterline@localhost")

UNFOLD = {
    "SITE_TITLE": "Meterline",
    "SITE_HEADER": "Meterline",
    "SITE_SYMBOL": "speed",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_LANGUAGES": True,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "gateway.console.frame.icon"}],
    "SCRIPTS": ["gateway.console.frame.script", "gateway.console.frame.live", "gateway.console.frame.copying"],
    "STYLES": ["gateway.console.frame.stylesheet"],
    "GLOBAL_CALLBACK": "gateway.console.frame.without_inline_colours",
    "DASHBOARD_CALLBACK": "gateway.console.overview.page.overview",
    "SIDEBAR": {"navigation": "gateway.console.frame.navigation"},
    "ACCOUNT": {"navigation": [{"title": gettext_lazy("Sign-in and sessions"), "link": "/console/me/"}]},
}

# Lines with time, level and logger: as JSON, or as text for a person who watches.
LOG_FORMAT = env.str("LOG_FORMAT", default="json")
# A line for each request that is answered: off, sampled or on (`gateway.process.access_log`).
ACCESS_LOG = env.str("ACCESS_LOG", default="sampled")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": "gateway.wire.log_lines.formatter", "text": LOG_FORMAT == "text"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
    # They would tell each URL that is dialled, and who knows a webhook's may call it.
    "loggers": {"httpx": {"level": "WARNING"}, "httpcore": {"level": "WARNING"}, "fido2": {"level": "WARNING"}},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO").upper()},
}
