"""Chat completions that name uploaded files: the provider gets the file, nobody else's file is ever named."""

import json
from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

import openai
import pytest

from accounts.models import ApiKey
from billing.models import Attempt, Budget, Hold, Usage
from gateway.files.store import file_id
from gateway.models import StoredFile
from tests.files.cabinet import NO_FILE, PDF, data_url, files_key, naming, row, sdk, upload
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def mine(gateway: Gateway, alice: Tenant) -> Iterator[openai.OpenAI]:
    """Alice's client."""
    with sdk(gateway, files_key(alice)) as client:
        yield client


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that says what it was sent."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?echo").slug
    synchronize(gateway)
    return slug


@pytest.mark.row("B037", "B040")
def test_it_works(mine: openai.OpenAI, model: str, alice: Tenant) -> None:
    report = upload(mine)
    image = upload(mine, PNG, "dot.png", purpose="vision")
    messages = naming(report.id, image.id, report.id)
    answer = mine.chat.completions.create(model=model, messages=messages)  # type: ignore[arg-type]
    sent = json.loads(answer.choices[0].message.content or "")
    pdf = {"type": "file", "file": {"filename": "report.pdf", "file_data": data_url("application/pdf", PDF)}}
    png = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}
    assert sent["messages"] == [{"role": "user", "content": [messages[0]["content"][0], pdf, png, pdf]}]
    assert Usage.objects.get(organization=alice.organization.id).status == "completed"


def test_every_provider_that_is_tried_gets_the_file(
    gateway: Gateway, mine: openai.OpenAI, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?status=503")
    add_offer(model, make_provider(simulated.base_url), "sim-small?echo", priority=1)
    synchronize(gateway)
    answer = gateway.chat(mine.api_key, model.slug, messages=naming(upload(mine).id)).json()
    assert data_url("application/pdf", PDF) in answer["choices"][0]["message"]["content"]


def test_a_key_for_chats_alone_may_name_its_projects_files(
    gateway: Gateway, mine: openai.OpenAI, model: str, alice: Tenant
) -> None:
    answer = gateway.chat(alice.secret, model, messages=naming(upload(mine).id))
    assert answer.status_code == 200
    assert data_url("application/pdf", PDF) in answer.json()["choices"][0]["message"]["content"]


@pytest.mark.row("B040")
def test_a_file_that_is_not_there_is_refused_and_nothing_happens(
    gateway: Gateway, mine: openai.OpenAI, model: str, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    alices, gone = upload(mine).id, upload(mine).id
    mine.files.delete(gone)
    requests = simulated.state()["requests"]
    dials = Attempt.objects.count()
    refused = [
        gateway.chat(charlie.secret, model, messages=naming(id)) for id in (alices, gone, file_id(UUID(int=0)), "f-1")
    ]
    refused.append(gateway.chat(charlie.secret, model, stream=True, messages=naming(alices)))
    assert [answer.status_code for answer in refused] == [400] * 5
    expected = NO_FILE | {"param": "messages[0].content[1].file.file_id"}
    assert [answer.json()["error"] for answer in refused] == [expected] * 5
    mixed = gateway.chat(mine.api_key, model, messages=naming(alices, gone)).json()["error"]
    assert mixed["param"] == "messages[0].content[2].file.file_id"
    assert (simulated.state()["requests"], Attempt.objects.count()) == (requests, dials)
    keys = [charlie.key.id, ApiKey.objects.get(pk=row(alices).key).id]
    assert not Usage.objects.filter(key__in=keys).exists()
    assert not Hold.objects.filter(key__in=keys).exists()


@pytest.mark.parametrize("stream", [False, True])
def test_content_is_read_only_for_who_can_pay(
    gateway: Gateway, mine: openai.OpenAI, model: str, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    spoilt = upload(mine).id  # so that reading it shows
    StoredFile.objects.filter(pk=row(spoilt).pk).update(content=b"spoilt")
    requests = simulated.state()["requests"]
    budget = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(0))
    refused = gateway.chat(mine.api_key, model, stream=stream, messages=naming(spoilt))
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "insufficient_credit")
    assert not Usage.objects.filter(organization=alice.organization.id).exists()
    budget.delete()
    failed = gateway.chat(mine.api_key, model, stream=stream, messages=naming(spoilt))
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "file_unreadable")
    usage = Usage.objects.get(organization=alice.organization.id)
    assert (usage.status, usage.error, usage.charge) == ("failed", "file_unreadable", Decimal(0))
    assert not Hold.objects.filter(organization=alice.organization.id).exists()
    assert simulated.state()["requests"] == requests


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ({"file_id": 7}, "invalid_type"),
        ({"file_id": "file-1", "file_data": "data:application/pdf;base64,UERG"}, "invalid_value"),
    ],
)
def test_an_id_that_says_too_much_or_nothing_is_refused(
    gateway: Gateway, alice: Tenant, model: str, file: dict[str, object], code: str
) -> None:
    messages = [{"role": "user", "content": [{"type": "file", "file": file}]}]
    answer = gateway.chat(alice.secret, model, messages=messages)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, "messages[0].content[0].file.file_id")
    assert not Usage.objects.filter(organization=alice.organization.id).exists()
