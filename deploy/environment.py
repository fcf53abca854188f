"""What `make run` tells the product through its environment, and the secrets it makes once and keeps."""

import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from secrets import token_urlsafe

import yaml

from accounts.keys import new_secret
from deploy.state import CHECKOUT, Memory, StartError

DEMO = CHECKOUT / "deploy" / "demo.yaml"
OPERATOR = "operator"
MARK = "METERLINE_SUPERVISED"  # With the state folder as its value it tells a later start whose a process is.


def keep_secrets(state: Path) -> dict[str, str]:
    """The demo's secrets, kept in `state`: a second run has the same key. The environment's own win."""
    memory = Memory(state / "secrets.env")
    memory.recall("SECRET_KEY", lambda: token_urlsafe(50))
    memory.recall("KEY_PEPPERS", lambda: token_urlsafe(32))
    memory.recall("SEALING_KEYS", lambda: urlsafe_b64encode(os.urandom(32)).decode())
    memory.recall("METERLINE_DEMO_KEY", new_secret)
    memory.recall("METERLINE_SIMULATED_KEY", lambda: token_urlsafe(24))
    memory.recall("METERLINE_OPERATOR_PASSWORD", lambda: token_urlsafe(12))
    kept = memory.all()
    return {name: os.environ.get(name) or value for name, value in kept.items()}


def given_urls() -> dict[str, str]:
    """The engines the environment names: both, or none for the embedded ones. Raises `StartError` at one."""
    given = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL") if os.environ.get(name)}
    if len(given) == 1:
        raise StartError(f"Only {next(iter(given))} is set. Set both DATABASE_URL and REDIS_URL, or neither.")
    return given


def given_port() -> int:
    """PORT, by default 8000. Raises `StartError` for what is no port."""
    text = os.environ.get("PORT") or "8000"
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise StartError(f"PORT is {text!r}; it must be a number from 1 to 65535.")
    return int(text)


def product_settings(
    state: Path, urls: Mapping[str, str], secrets: Mapping[str, str], port: int, simulated_port: int
) -> dict[str, str]:
    """What the product's processes are told, and `manage.py` beside them, besides what the shell has."""
    simulated = f"http://127.0.0.1:{simulated_port}"
    allowed = [entry for entry in (os.environ.get("EGRESS_ALLOW"), simulated) if entry]
    return {
        **secrets,
        **urls,
        "METERLINE_SIMULATED_URL": f"{simulated}/v1",
        "EGRESS_ALLOW": ",".join(allowed),
        "SPOOL_DIR": str(state / "spool"),
        "EXPORT_DIR": str(state / "exports"),
        "SERVE": "all",
        "DEBUG": "false",
        "INSECURE_COOKIES": "true",  # Plain http, on loopback alone.
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
        "CSRF_TRUSTED_ORIGINS": f"http://127.0.0.1:{port},http://localhost:{port}",
        "LOG_FORMAT": "text",
        "PYTHONUNBUFFERED": "1",
    }


def demo_model() -> str:
    """The first model of the demo, for the printed request."""
    return str(next(iter(yaml.safe_load(DEMO.read_text())["models"])))
