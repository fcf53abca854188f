"""What a project's or a key's dialect changes in models and streams, and that a further one is a row of data."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.test import RequestFactory

from accounts.models import Project, User
from billing.models import Attempt, Limit, Usage
from gateway.configuration import apply
from gateway.configuration.export import export
from gateway.wire.dialects import DIALECTS
from tests.configuration.desk import Desk
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import ROOT, Gateway, environment, free_port, synchronize
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import ALL, error, events, nothing_happened, speak


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("B069", "B287")
@pytest.mark.parametrize(
    ("dialect", "status", "type", "code"),
    [
        ("standard", 404, "invalid_request_error", "model_not_found"),
        ("zenmux", 404, "invalid_model", "404"),
        ("ezrouter", 403, "new_api_error", "access_denied"),
    ],
)
def test_an_unknown_model_is_refused(
    gateway: Gateway, alice: Tenant, dialect: str, status: int, type: str, code: str
) -> None:
    speak(alice, dialect)
    synchronize(gateway)
    shown = gateway.client.get("/v1/models/no/such", headers={"x-api-key": alice.secret})
    for response in (gateway.chat(alice.secret, "no/such"), shown):
        found = error(response)
        assert (response.status_code, found["type"], found["code"]) == (status, type, code)
        assert dialect != "zenmux" or found["message"] == "Model no/such is not valid"
    assert nothing_happened(alice)


@pytest.mark.row("B072", "B208")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ALL)
def test_the_answer_to_an_alias_names_the_model_or_the_alias(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, stream: bool
) -> None:
    speak(alice, dialect)
    model = make_model(provider)
    model.aliases = [alias := model.slug.replace("/", "-")]
    model.save()
    synchronize(gateway)
    response = gateway.chat(alice.secret, alias, stream=stream)
    answers = events(response.text)[:-1] if response.headers["content-type"].startswith("text/") else [response.json()]
    assert {answer["model"] for answer in answers} == {alias if dialect == "ezrouter" else model.slug}
    assert Usage.objects.get(organization=alice.organization.id).model == model.slug


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B109", "B112", "B204", "B236", "B267", "B268", "B272")
@pytest.mark.parametrize("stream", [False, None, True])
def test_ezrouter_streams_whatever_was_asked(
    gateway: Gateway, alice: Tenant, provider: Any, simulated: SimulatedProvider, stream: bool | None
) -> None:
    speak(alice, "ezrouter")
    model = make_model(provider, "sim-small?tokens=3&prompt=5")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug, **({} if stream is None else {"stream": stream}))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    chunks = events(response.text)
    assert chunks[-1] == "[DONE]"
    assert {chunk["object"] for chunk in chunks[:-1]} == {"chat.completion.chunk"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-2]] == [None, None, None, None, "stop"]
    assert (chunks[-2]["choices"], chunks[-2]["usage"]["completion_tokens"]) == ([], 3)
    assert [chunk["usage"] for chunk in chunks[:-2]] == [None] * 5
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks[:-2]] == [None] * 5
    assert [chunk["system_fingerprint"] for chunk in chunks[:-1]] == [None] * 6
    usage = Usage.objects.get(id=chunks[0]["id"])
    assert (usage.stream, usage.prompt_tokens, usage.completion_tokens) == (True, 5, 3)
    # The provider was asked for a stream too, or the parts would have come all at once.
    assert [line["stream"] for line in simulated.bill() if line["id"] == usage.upstream_id] == [True]
    # What fails before the stream is an answer with a status, as ever.
    refused = gateway.chat(alice.secret, "no/such", stream=stream)
    assert (refused.status_code, refused.headers["content-type"]) == (403, "application/json")


@pytest.mark.row("B109", "B112", "B204")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
def test_the_others_stream_when_asked(gateway: Gateway, alice: Tenant, provider: Any, dialect: str) -> None:
    speak(alice, dialect)
    model = make_model(provider)
    synchronize(gateway)
    for stream in (None, False):
        response = gateway.chat(alice.secret, model.slug, stream=stream)
        assert (response.headers["content-type"], response.json()["object"]) == ("application/json", "chat.completion")
    streamed = gateway.chat(alice.secret, model.slug, stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert not [chunk for chunk in events(streamed.text)[:-1] if "usage" in chunk]


@pytest.mark.row("B163", "B273", "B278", "B279")
@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        ("standard", {"type": "upstream_error", "code": "upstream_truncated", "param": None}),
        ("zenmux", {"type": "provider_api_error", "code": "500"}),
        ("ezrouter", {"type": "upstream_error", "code": "upstream_truncated"}),
    ],
)
def test_a_stream_that_breaks_ends_with_an_error_in_the_dialect(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, shown: dict[str, Any]
) -> None:
    speak(alice, dialect)
    model = make_model(provider, "sim-small?tokens=5&fault=reset_mid@3")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug, stream=True)
    *chunks, last = events(response.text)
    id = response.headers["x-request-id"]
    assert response.status_code == 200
    assert {"chat.completion.chunk"} == {chunk["object"] for chunk in chunks}
    message = "The provider's answer broke off." + (f" (request id: {id})" if dialect == "ezrouter" else "")
    named = {"request_id": id} if dialect == "zenmux" else {}
    assert last == {"error": {**shown, **named, "message": message}}


# --- where it is chosen ---------------------------------------------------------------------------------------------


def test_a_file_chooses_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.lines("organizations: {NAME: {name: A, projects: {main: {name: M, keys: {ci: {}}}}}}")
    project = Project.objects.get(organization__slug=desk.slug)
    assert (project.dialect, project.strict_params, project.keys.get().dialect) == ("standard", False, "")
    text = """
        organizations:
          NAME:
            projects:
              main: {dialect: zenmux, strict_params: true, sends_unknown_params: true, keys: {ci: {dialect: ezrouter}}}
    """
    assert desk.lines(text) == [
        "~ project NAME/main: dialect standard -> zenmux, strict_params false -> true, "
        "sends_unknown_params false -> true",
        "~ key NAME/main/ci: dialect '' -> ezrouter",
    ]
    assert desk.lines(text) == []
    exported = desk.file(export(desk.slug))
    assert apply(exported, {}).lines == []
    assert "dialect: zenmux" in exported.read_text()
    project.refresh_from_db()
    assert (project.dialect, project.strict_params, project.keys.get().dialect) == ("zenmux", True, "ezrouter")
    assert project.sends_unknown_params
    assert "one of standard, zenmux, ezrouter" in desk.refused(text.replace("zenmux", "openai"))
    assert Project.objects.get(pk=project.pk).dialect == "zenmux"


def test_the_console_offers_every_dialect(alice: Tenant) -> None:
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser(f"operator-{alice.organization.slug}")
    for row, names in ((alice.project, [*DIALECTS]), (alice.key, ["", *DIALECTS])):
        page = admin.site.get_model_admin(type(row))
        fields: Any = page.get_form(request, row, change=True)(instance=row).fields
        assert [name for name, _ in fields["dialect"].choices] == names
    assert {"strict_params", "sends_unknown_params"} <= admin.site.get_model_admin(Project).get_form(
        request
    )().fields.keys()


def test_a_dialect_that_there_is_not_is_refused(alice: Tenant) -> None:
    for row in (alice.project, alice.key):
        row.dialect = "openai"
        with pytest.raises(ValidationError) as caught:
            row.full_clean()
        assert caught.value.message_dict.keys() == {"dialect"}


def test_a_deployment_does_not_start_in_a_dialect_that_there_is_not() -> None:
    refused = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=environment(DEFAULT_DIALECT="openai"),
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "(gateway.E006) DEFAULT_DIALECT is 'openai'." in refused.stderr


# --- a further one ---------------------------------------------------------------------------------------------------

FOURTH = """
from gateway.wire.dialects import DIALECTS, Dialect, Envelope, ErrorRow

DIALECTS["acme"] = Dialect(
    "acme",
    envelope=Envelope(fields=("message", "code"), message="{message} [{request_id}]"),
    errors={"model_not_found": ErrorRow(410, code="E7")},
    request_id_headers=("x-request-id", "x-acme-trace"),
    headers={"x-acme": "yes"},
    rate_headers=False,
    queue_seconds=2.5,
)
"""


@pytest.fixture
def other_release(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway whose table has a fourth row."""
    folder = tmp_path_factory.mktemp("fourth")
    port, log = free_port(), folder / "gateway.log"
    run = f"sys.argv = ['serve', '--port', '{port}']; runpy.run_module('gateway.door.server', run_name='__main__')"
    start = f"import runpy, sys\n{FOURTH}\n{run}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", start],
            cwd=ROOT,
            env=environment(SERVE="gateway", SPOOL_DIR=str(folder / "spool"), EGRESS_ALLOW=simulated.url),
            stdout=output,
            stderr=output,
        )
    gateway = Gateway(process, port, log, folder / "spool")
    try:
        gateway.until_ready()
        yield gateway
    finally:
        gateway.stop()


def test_a_fourth_dialect_is_a_row_and_nothing_else(
    other_release: Gateway, gateway: Gateway, alice: Tenant, provider: Any
) -> None:
    model = make_model(provider)
    # This process does not have the row, as an older release would not; the database takes any name.
    type(alice.project).objects.filter(id=alice.project.id).update(dialect="acme")
    synchronize(other_release, gateway)
    response = other_release.chat(alice.secret, "no/such")
    id = response.headers["x-request-id"]
    assert response.status_code == 410
    assert error(response)["code"] == "E7"
    assert error(response)["message"].endswith(f" [{id}]")
    assert error(response).keys() == {"message", "code"}
    assert (response.headers["x-acme-trace"], response.headers["x-acme"]) == (id, "yes")
    answer = other_release.chat(alice.secret, model.slug)
    assert (answer.status_code, answer.headers["x-acme"]) == (200, "yes")
    assert Attempt.objects.filter(generation=answer.json()["id"]).count() == 1
    # It waits, though not for ever, where others are refused at once.
    Limit.objects.create(organization=alice.organization, key=alice.key, measure="requests", value=0)
    limited = other_release.chat(alice.secret, model.slug)
    assert (limited.status_code, error(limited)["code"]) == (429, "rate_limit_exceeded")
    assert limited.elapsed.total_seconds() >= 1
    assert not [name for name in limited.headers if "ratelimit" in name or name == "retry-after"]
    # The release without the row still answers, in the standard one.
    assert error(gateway.chat(alice.secret, "no/such"))["code"] == "model_not_found"
