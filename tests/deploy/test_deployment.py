"""What a deployment is made of: compose asks for every secret, defaults none, and gives each process its own."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import override_settings

from deploy.new_env import new_secrets
from deploy.state import CHECKOUT
from gateway.checks import secrets_are_set

TEXT = (CHECKOUT / "docker-compose.yml").read_text()


@pytest.fixture
def services() -> dict[str, dict[str, Any]]:
    """The services, by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
    return found


def test_every_secret_is_asked_for_and_none_has_a_default() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+):\?run deploy/new_env.py\}", TEXT))
    assert asked == set(new_secrets())
    for name in asked:
        assert len(re.findall(rf"\$\{{{name}\b", TEXT)) == len(re.findall(rf"\$\{{{name}:\?", TEXT))


def test_fresh_secrets_are_what_the_product_takes_and_differ_each_time() -> None:
    one, other = new_secrets(), new_secrets()
    assert not set(one.values()) & set(other.values())
    given = {
        "SECRET_KEY": one["SECRET_KEY"],
        "KEY_PEPPERS": one["KEY_PEPPERS"].split(","),
        "SEALING_KEYS": one["SEALING_KEYS"].split(","),
    }
    with override_settings(**given):
        assert secrets_are_set(None) == []
    # These stand inside URLs as they are.
    assert all(re.fullmatch(r"[0-9a-f]{48}", value) for name, value in one.items() if name.endswith("PASSWORD"))


@pytest.mark.parametrize(
    ("service", "role"),
    [("migrate", "OWNER"), ("gateway", "APP"), ("worker", "APP"), ("beat", "APP"), ("console", "CONSOLE")],
)
def test_each_process_knows_the_password_of_its_own_role_alone(
    services: dict[str, dict[str, Any]], service: str, role: str
) -> None:
    told = " ".join(services[service]["environment"].values())
    assert set(re.findall(r"METERLINE_([A-Z]+)_PASSWORD", told)) == {role}
    assert "POSTGRES_PASSWORD" not in told


def test_the_engines_are_not_published_and_the_rest_on_this_machine_alone(services: dict[str, dict[str, Any]]) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert ports == {
        "gateway": ["${GATEWAY_PUBLISH:-127.0.0.1:8000}:8000"],
        "console": ["127.0.0.1:8001:8000"],
    }
    assert {name for name, service in services.items() if "outside" not in service["networks"]} == {
        "postgres",
        "valkey",
    }


def test_every_mounted_file_and_command_exists(services: dict[str, dict[str, Any]]) -> None:
    for volume in services["postgres"]["volumes"]:
        source = Path(volume.split(":")[0])
        assert source == Path("postgres") or (CHECKOUT / source).is_file()
    entrypoint = (CHECKOUT / "deploy" / "entrypoint.sh").read_text()
    known = set(re.findall(r"^([a-z]+)\)$", entrypoint, re.MULTILINE))
    assert {service["command"][0] for service in services.values() if "build" in service} == known
