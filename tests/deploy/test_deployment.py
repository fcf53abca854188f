"""What a deployment is made of: compose asks for every secret, defaults none, and gives each process its own."""

import re
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import override_settings

from deploy.environment import given_port, product_settings
from deploy.new_env import new_secrets
from deploy.run import run
from deploy.state import CHECKOUT, StartError
from gateway.checks import secrets_are_set
from gateway.door.serving import CUT_SECONDS
from gateway.openapi.operations import OPERATIONS

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


def test_make_run_passes_on_what_may_be_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allowed() -> str:
        return product_settings(tmp_path, {}, {}, 8000, 9000)["EGRESS_ALLOW"]

    monkeypatch.delenv("EGRESS_ALLOW", raising=False)
    assert allowed() == "http://127.0.0.1:9000"
    monkeypatch.setenv("EGRESS_ALLOW", "http://127.0.0.1:8080,http://[::1]:11434")
    assert allowed() == "http://127.0.0.1:8080,http://[::1]:11434,http://127.0.0.1:9000"


def test_the_demo_does_not_cut_what_a_coding_agent_writes() -> None:
    demo = yaml.safe_load((CHECKOUT / "deploy" / "demo.yaml").read_text())
    projects = [project for one in demo["organizations"].values() for project in one["projects"].values()]
    assert [project["default_output_cap"] for project in projects] == [16_384]
    assert all(model.get("max_output", 16_384) >= 16_384 for model in demo["models"].values())


def test_what_the_pages_of_the_api_ask_for_is_in_the_demo() -> None:
    demo = yaml.safe_load((CHECKOUT / "deploy" / "demo.yaml").read_text())
    asked = [row.sample["model"] for row in OPERATIONS.values() if row.sample and "model" in row.sample]
    asked += [row.names["name"] for row in OPERATIONS.values() if "name" in row.names]
    assert set(asked) - {"$FILE"} == {"demo/swift", "demo/vectors"} <= demo["models"].keys()


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{page.name}" for page in CHECKOUT.glob("docs/*.md"))])
def test_what_is_to_be_typed_can_be_pasted(page: str) -> None:
    blocks = re.findall(r"^ *```(?:sh|bash|shell)\n(.*?)^ *```", (CHECKOUT / page).read_text(), re.M | re.S)
    assert blocks or page != "README.md"
    assert not [line for block in blocks for line in block.splitlines() if line.lstrip().startswith(("$ ", "# $"))]


def test_what_a_newcomer_has_to_know_is_said() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    for words in ("METERLINE_STATE", "pip install openai", ".mjs", "about 1 GB", "on 127.0.0.1\nalone"):
        assert words in readme, words
    assert "docker compose run --rm migrate createsuperuser" in TEXT  # the first user of the console


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ("0", "PORT is '0'; it must be a number from 1 to 65535."),
        ("65536", "PORT is '65536'; it must be a number from 1 to 65535."),
        ("http", "PORT is 'http'; it must be a number from 1 to 65535."),
    ],
)
def test_what_is_no_port_is_told(port: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", port)
    with pytest.raises(StartError) as refused:
        given_port()
    assert str(refused.value) == told


def test_a_port_of_the_systems_is_named_with_another_to_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may listen there runs on it; to others the message says why not."""
    monkeypatch.setenv("PORT", "80")
    monkeypatch.setenv("METERLINE_STATE", str(tmp_path))
    with socket.socket() as taken, ExitStack() as cleanup:
        with suppress(OSError):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 80))
            taken.listen()
        with pytest.raises(StartError) as refused:
            run(threading.Event(), cleanup)
    assert str(refused.value).endswith("Ports below 1024 are the system's; choose another: PORT=8080 make run")
    assert str(refused.value).startswith("PORT 80 of 127.0.0.1 cannot be used: ")
    assert not (tmp_path / "postgres").exists()


def test_a_stop_is_given_the_time_that_it_takes(services: dict[str, dict[str, Any]]) -> None:
    """5 seconds of notice and 30 for open requests, as the documentation has it, and what is cut then may say so."""
    entrypoint = (CHECKOUT / "deploy" / "entrypoint.sh").read_text()
    told = (CHECKOUT / "docs" / "configuration.md").read_text()
    given = {name: int(text) for name, text in re.findall(r"\{(STOP_[A-Z]+_SECONDS):-(\d+)\}", entrypoint)}
    assert given == {"STOP_NOTICE_SECONDS": 5, "STOP_DRAIN_SECONDS": 30}
    for name, seconds in given.items():
        assert f"| `{name}` | `{seconds}` |" in told
    for service in ("gateway", "console"):
        grace = int(services[service]["stop_grace_period"].removesuffix("s"))
        assert grace >= sum(given.values()) + 2 * CUT_SECONDS
