"""Brings the engines up before Django reads its settings: a real PostgreSQL and Valkey, ours or the ones named by
`DATABASE_URL` and `REDIS_URL`. Loaded by `-p tests.plugin`, since a conftest would come too late.
"""

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

STATE = Path(__file__).resolve().parent.parent / ".run" / "test"
cleanup = ExitStack()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None]:
    """Sets the environment the product is tested in."""
    os.environ["DATABASE_ROLE"] = "owner"  # whatever the product does runs in processes or roles of its own
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
    os.environ.setdefault("KEY_PEPPERS", secrets.token_urlsafe(32))
    os.environ.setdefault("SEALING_KEYS", urlsafe_b64encode(os.urandom(32)).decode())
    os.environ["INSECURE_COOKIES"] = "true"
    if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
        from deploy.engines import start

        engines = start(STATE)
        cleanup.callback(engines.stop)
        os.environ.update(engines.urls)
    return (yield)


def pytest_unconfigure() -> None:
    """Stops what was started."""
    cleanup.close()
