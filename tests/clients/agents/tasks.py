"""Each agent writes a file through the gateway, over a provider of each protocol.

Not `test_…`: `make test` leaves it out, and `python -m tests.clients.agents` names it.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from billing.models import Usage
from tests.clients.acting import Model, Provider, serving
from tests.clients.agents.installed import command
from tests.clients.agents.roster import AGENTS, FILE, TEXT, Agent, Place
from tests.pairs.providers import PROVIDERS
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider

SECONDS = 180  # for the whole task: some agents try again for long
NOWHERE = "http://127.0.0.1:9"  # the proxy for all that is not on this machine


class Stage(NamedTuple):
    """A provider, and a gateway that may dial it."""

    provider: Provider
    gateway: Gateway


@pytest.fixture(scope="module")
def stage(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all tasks."""
    with (
        serving() as provider,
        running(tmp_path_factory.mktemp("gateway"), EGRESS_ALLOW=provider.url) as (gateway,),
    ):
        yield Stage(provider, gateway)


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: agent.name)
def installed(request: pytest.FixtureRequest) -> tuple[Agent, list[str]]:
    """An agent, and how it is started."""
    return request.param, command(request.param)


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_a_file_is_written(
    installed: tuple[Agent, list[str]],
    protocol: str,
    stage: Stage,
    alice: Tenant,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    agent, program = installed
    row = make_provider(stage.provider.base_url(protocol), protocol=protocol, **PROVIDERS[protocol].FIELDS)
    name = f"m-{row.slug}"
    slug = make_model(row, name, context_length=200_000).slug
    synchronize(stage.gateway)
    home, folder = tmp_path / "home", tmp_path / "work"
    place = Place(stage.gateway.url, alice.secret, slug, home, folder)
    model = Model(lambda offered: agent.call(place, offered), agent.says)
    stage.provider.models[name] = model
    folder.mkdir()
    for file, content in agent.files(place).items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(content)

    status, said = run([*program, *agent.arguments(place)], agent, place)

    rows = Usage.objects.filter(organization=alice.organization.id)
    booked = sum(row.prompt_tokens or 0 for row in rows), sum(row.completion_tokens or 0 for row in rows)
    record_property("counts", (len(rows), booked, model.counted, model.was_shown_its_proof))
    assert not stage.provider.faults, stage.provider.faults.pop()
    assert status == 0, said
    assert (folder / FILE).read_text() == TEXT, said
    assert agent.says.strip().splitlines()[0] in said
    assert {(row.status, row.basis) for row in rows} == {("completed", "reported")}
    assert (len(rows), booked) == (len(model.asked), model.counted)
    if agent.keeps_thoughts:
        assert model.was_shown_its_proof


def run(arguments: list[str], agent: Agent, place: Place) -> tuple[int, str]:
    """The exit status of an agent, and all that it printed. Ends what it started."""
    place.home.mkdir(exist_ok=True)
    env = {"PATH": f"{Path(arguments[0]).parent}:{os.environ['PATH']}", "HOME": str(place.home), "LANG": "C.UTF-8"}
    env |= {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1", "CI": "true"}
    with (place.home / "said.log").open("w+b") as log:
        process = subprocess.Popen(
            arguments,
            cwd=place.folder,
            env={**env, **agent.settings(place)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            # Not reaped yet, so that its number, which is the group's, is nobody else's: a child of its may still run.
            ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
            with suppress(AssertionError):
                until(lambda: os.waitid(os.P_PID, process.pid, ended), SECONDS, 0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        log.seek(0)
        return status, log.read().decode(errors="replace")[-4000:]
