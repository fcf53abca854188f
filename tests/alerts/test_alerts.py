"""Budgets that are nearly spent: told once to whom it concerns, over real sockets, and harmless whoever is told."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from django.conf import LazySettings
from django.db import connection, connections
from django.utils import timezone

from billing.backbone.admission import Refused
from billing.credit.prepaid import grant
from billing.crossings import NOTE, RETENTION_DAYS, note_crossings, prune_crossings
from billing.models import Budget, Counter, Credit, CreditKind, Crossing, Delivery, Prepaid, Recipient
from gateway.alerts import delivering
from gateway.alerts.delivering import BACK_OFF, CLAIM, LEASE, MOST_TRIES, deliver
from gateway.alerts.signature import LEAST, MOST, PREFIX, UnusableSecret, key_of, new_secret, signed
from routing.egress import Egress, parse_allow
from routing.outside import Outside
from tests.console.browser import make_delivery, make_usage
from tests.stage.backbone import app_url, backbone, database, owner_url, run, settled, wanted
from tests.stage.cast import NOBODYS, Tenant, make_key
from tests.stage.hook import Got, Hook, hook, says
from tests.stage.mailbox import Mailbox, mailbox

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """What a test has left to be sent nobody sends after it, and its recipients hear of no other's budgets."""
    yield
    Delivery.objects.filter(status="waiting").update(status="given_up")
    Recipient.objects.update(active=False)


@pytest.fixture
def receiver() -> Iterator[Hook]:
    """A receiver of webhooks."""
    with hook() as found:
        yield found


@pytest.fixture
def post(settings: LazySettings) -> Iterator[Mailbox]:
    """The mail server of the settings."""
    with mailbox() as found:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", found.port
        settings.DEFAULT_FROM_EMAIL = "Meterline <alerts@gateway.example>"
        yield found


@contextmanager
def the_worker() -> Iterator[None]:
    """Within, this process's connection has the rights of the worker alone."""
    with connection.cursor() as cursor:
        cursor.execute("set role meterline_app")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset role")


def note() -> int:
    """`note_crossings`, by the worker."""
    with the_worker():
        return note_crossings()


def tell(*hooks: Hook) -> int:
    """`deliver`, by the worker, which may dial these receivers and nothing else inside."""
    with the_worker():
        return deliver(Outside(Egress(parse_allow([one.url for one in hooks]))))


def webhook(tenant: Tenant, url: str, secret: str = SECRET) -> Recipient:
    """A webhook of the tenant's."""
    made = Recipient(organization=tenant.organization, channel="webhook", address=url)
    made.put(secret)
    made.full_clean()
    made.save()
    return made


def mail(tenant: Tenant, address: str) -> Recipient:
    """A mail address of the tenant's."""
    made = Recipient(organization=tenant.organization, channel="mail", address=address)
    made.full_clean()
    made.save()
    return made


def spend(budget: Budget, used: str) -> None:
    """Has so much of a budget spent in the running period."""
    counter = Counter.objects.filter(subject=budget.subject, measure="money", period=budget.period)
    assert counter.update(used=Decimal(used)) == 1


def make_budget(tenant: Tenant, amount: str = "10", used: str = "0", **fields: Any) -> Budget:
    """A budget of the tenant's project, for ever unless told otherwise."""
    fields = {"organization": tenant.organization, "project": tenant.project, "period": "total", **fields}
    made = Budget.objects.create(amount=Decimal(amount), **fields)
    spend(made, used)
    return made


def rows(tenant: Tenant) -> list[tuple[str, int, str]]:
    """What became of the tenant's messages: status, tries, error."""
    found = Delivery.objects.filter(organization=tenant.organization.pk).order_by("pk")
    return [(one.status, one.tries, one.last_error) for one in found]


def due(tenant: Tenant) -> None:
    """Whatever of the tenant's waits is due now."""
    Delivery.objects.filter(organization=tenant.organization.pk).update(next_try_at=timezone.now())


def percents(budget: Budget) -> list[int]:
    """What is noted of a budget, in order."""
    found = Crossing.objects.filter(subject=budget.subject, period=budget.period)
    return list(found.order_by("pk").values_list("percent", flat=True))


# --- what is told ---------------------------------------------------------------------------------------------------


def test_it_works_as_a_webhook(alice: Tenant, receiver: Hook) -> None:
    webhook(alice, f"{receiver.url}/hooks/meterline/")
    budget = make_budget(alice, amount="500", used="401.250000000001", period="month")
    began = int(time.time())
    assert (note(), tell(receiver)) == (1, 1)
    (got,) = receiver.got
    (delivery,) = Delivery.objects.filter(organization=alice.organization.pk).select_related("crossing")
    crossing = delivery.crossing
    assert json.loads(got.body) == {
        "type": "budget.threshold_reached",
        "timestamp": f"{crossing.crossed_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        "data": {
            "organization": {"id": str(alice.organization.pk), "slug": alice.organization.slug},
            "project": {"id": str(alice.project.pk), "slug": "main"},
            "key": None,
            "model": None,
            "end_user": None,
            "period": "month",
            "period_start": f"{datetime.now(UTC):%Y-%m}-01T00:00:00.000000Z",
            "percent": 80,
            "amount": "500",
            "used": "401.250000000001",
            "currency": "USD",
            "hard": True,
        },
    }
    assert got.line == "POST /hooks/meterline/ HTTP/1.1"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == f"msg_{delivery.message.hex}"
    assert began <= int(got.headers["webhook-timestamp"]) <= int(time.time())
    # As the receiver's own library has it.
    content = b".".join([got.headers["webhook-id"].encode(), got.headers["webhook-timestamp"].encode(), got.body])
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), content, hashlib.sha256)
    assert got.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert rows(alice) == [("sent", 1, "")] and delivery.sent_at is not None
    assert (note(), tell(receiver), percents(budget)) == (0, 0, [80])


def test_it_works_as_mail(alice: Tenant, post: Mailbox) -> None:
    mail(alice, "finance@tenant.example")
    key, _ = make_key(alice.project, name="ci\r\nBcc: eve@example.com")
    make_budget(alice, used="10", project=None, key=key, hard=False, alerts=[100])
    assert (note(), tell()) == (1, 1)
    ((whom, got),) = post.mails
    delivery = Delivery.objects.select_related("crossing").get(organization=alice.organization.pk)
    assert whom == ["finance@tenant.example"]
    name = f"{alice.organization.slug}/main/ci Bcc: eve@example.com"
    assert (got["Subject"], got["To"]) == (f"{name}: 100 % of the budget in total is spent", "finance@tenant.example")
    assert (got["From"], got["Bcc"]) == ("Meterline <alerts@gateway.example>", None)
    assert got["Message-ID"] == f"<{delivery.message.hex}@gateway.example>"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got.get_content().splitlines() == [
        f"{name}: 100 % of the budget in total is spent.",
        "",
        "Spent: $10 of $10.",
        "It is a soft budget: nothing is refused.",
        f"Seen at {delivery.crossing.crossed_at:%Y-%m-%d %H:%M:%S} UTC.",
    ]
    assert rows(alice) == [("sent", 1, "")]


@pytest.mark.row("B372")
def test_a_low_balance_is_told_once_after_each_credit(alice: Tenant, receiver: Hook, post: Mailbox) -> None:
    def credit(amount: str) -> Prepaid:
        references = Credit.objects.filter(organization=alice.organization).count()
        grant(alice.organization, CreditKind.TOP_UP, Decimal(amount), f"r{references}", "finance", begin=True)
        return Prepaid.objects.get(pk=alice.organization.pk)

    def use(amount: str) -> None:
        assert Counter.objects.filter(subject=alice.organization.pk, period="balance").update(used=Decimal(amount)) == 1

    mail(alice, "finance@tenant.example")
    assert credit("10").alerts == [3]  # below three dollars, when nobody says otherwise
    use("7")
    assert note() == 0
    use("7.000000000001")
    assert (note(), tell(), note()) == (1, 1, 0)
    ((_, got),) = post.mails
    slug = alice.organization.slug
    seen = Crossing.objects.get(subject=alice.organization.pk).crossed_at
    assert got["Subject"] == f"{slug}: less than $3 of the prepaid balance is left"
    assert got.get_content().splitlines() == [
        f"{slug}: less than $3 of the prepaid balance is left.",
        "",
        "Left: $2.999999999999.",
        "Once it is used up, what costs is refused.",
        f"Seen at {seen:%Y-%m-%d %H:%M:%S} UTC.",
    ]
    Recipient.objects.filter(organization=alice.organization).update(active=False)
    webhook(alice, receiver.url)
    prepaid = credit("1")
    Prepaid.objects.filter(pk=prepaid.pk).update(alerts=["3", "0"])
    use("9")
    assert note() == 1  # anew, since it was topped up
    use("11")
    assert (note(), tell(receiver), note()) == (1, 2, 0)
    told = [json.loads(got.body) for got in receiver.got]
    assert {one["type"] for one in told} == {"balance.low"}
    assert sorted((one["data"]["below"], one["data"]["left"]) for one in told) == [("0", "0"), ("3", "2")]
    assert told[0]["data"] | {"below": "", "left": ""} == {
        "organization": {"id": str(alice.organization.pk), "slug": slug},
        "below": "",
        "left": "",
        "currency": "USD",
        "credited_at": f"{prepaid.granted_at:%Y-%m-%dT%H:%M:%S.%fZ}",
    }
    crossings = Crossing.objects.filter(subject=alice.organization.pk)
    prune_crossings()
    assert crossings.count() == 3
    # Old ones are forgotten but for the last credit's, or that would be told again.
    Delivery.objects.filter(organization=alice.organization.pk).delete()
    crossings.update(crossed_at=timezone.now() - timedelta(days=RETENTION_DAYS, minutes=1))
    prune_crossings()
    assert set(crossings.values_list("period_start", "amount")) == {
        (prepaid.granted_at, Decimal(3)),
        (prepaid.granted_at, Decimal(0)),
    }
    assert note() == 0


def test_what_is_settled_counts_and_a_refusal_tells_nobody(alice: Tenant, receiver: Hook, tmp_path: Path) -> None:
    webhook(alice, receiver.url)
    make_budget(alice, amount="1", alerts=[50, 85, 86])

    async def scenario(charge: str | None) -> None:
        async with backbone(tmp_path) as here:
            item = wanted(alice.key, rate="0.01" if charge else "0.10", min_cap=100)  # of at most $1, or $10
            held = await here.admission.hold(item)
            assert charge
            await here.settler.settle(settled(item, held, charge))

    with pytest.raises(Refused):
        run(scenario(None))
    assert (note(), tell(receiver), receiver.got, rows(alice)) == (0, 0, [], [])
    run(scenario("0.85"))
    assert (note(), tell(receiver)) == (2, 2)
    told = [json.loads(got.body)["data"] for got in receiver.got]
    assert sorted(one["percent"] for one in told) == [50, 85]
    assert {(one["used"], one["amount"]) for one in told} == {("0.85", "1")}


def test_each_percent_is_reached_once_a_period_and_amount(alice: Tenant) -> None:
    mail(alice, "finance@tenant.example")
    budget = make_budget(alice, used="7.999999999999", alerts=[80, 100, 120])
    assert note() == 0
    for used, new in (("8", 1), ("9.99", 0), ("11", 1), ("50", 1), ("60", 0)):
        spend(budget, used)
        assert note() == new, used
    assert percents(budget) == [80, 100, 120]
    budget.amount = Decimal(100)  # of which 60 are spent
    budget.save()
    assert note() == 0
    spend(budget, "80")
    assert note() == 1
    budget.amount = Decimal(10)  # as it was
    budget.save()
    assert note() == 0


def test_a_window_begins_anew_and_its_last_minutes_are_still_told(alice: Tenant) -> None:
    mail(alice, "finance@tenant.example")
    budget = make_budget(alice, used="9", period="day")
    assert note() == 1
    Counter.objects.filter(subject=budget.subject).update(period_start=timezone.now() - timedelta(days=40))
    Crossing.objects.filter(subject=budget.subject).update(period_start=timezone.now() - timedelta(days=40))
    assert note() == 0  # of a day long gone, and nothing is spent today
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_counter set period_start = billing_window('day', now() - interval '9 minutes')"
            " where subject = %s",
            [budget.subject],
        )
    assert note() == 1


def test_of_each_end_users_budget_it_is_told_once_for_each(alice: Tenant, charlie: Tenant, receiver: Hook) -> None:
    """Also of one by name, of whom the others' amount says nothing, and of those without a name."""
    webhook(alice, f"{receiver.url}/alice")
    mail(charlie, "finance@charlie.example")
    for tenant in (alice, charlie):
        for user, charge in (("ann", "9"), ("ben", "1"), ("vip", "9"), ("", "8")):
            make_usage(tenant, charge=Decimal(charge), model="test/a", end_user=user)
        Budget.objects.create(organization=tenant.organization, period="day", amount=Decimal(10), end_user="*")
    Budget.objects.create(organization=alice.organization, period="day", amount=Decimal(100), end_user="vip")
    Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(27), model="test/a")
    assert (note(), note()) == (4 + 3, 0)  # his vip has no budget by name
    found = Crossing.objects.filter(organization=alice.organization.pk).order_by("end_user", "percent")
    assert [(x.model, x.end_user, x.percent, x.used) for x in found] == [
        ("", "", 80, Decimal(8)),
        ("", "ann", 80, Decimal(9)),
        ("test/a", None, 80, Decimal(27)),
        ("test/a", None, 100, Decimal(27)),
    ]
    assert [crossing.whom().partition(" ")[2] for crossing in found] == [
        "without a user",
        "for end user ann",
        "of test/a",
        "of test/a",
    ]
    tell(receiver)
    told = [json.loads(got.body)["data"] for got in receiver.got]
    assert sorted((data["model"] or "", data["end_user"] or "", data["percent"]) for data in told) == [
        ("", "", 80),
        ("", "ann", 80),
        ("test/a", "", 80),
        ("test/a", "", 100),
    ]
    make_usage(alice, charge=Decimal(1), end_user="ann")
    Budget.objects.filter(organization=alice.organization, end_user="*").update(alerts=[80, 100])
    Counter.objects.filter(organization=alice.organization.pk, end_user="ann").update(used=10)
    assert note() == 1


def test_a_budget_of_nothing_is_reached_by_the_first_spending(alice: Tenant) -> None:
    mail(alice, "finance@tenant.example")
    budget = make_budget(alice, amount="0", alerts=[100], hard=False)
    assert note() == 0
    spend(budget, "0.000000000001")
    assert note() == 1


def test_whom_it_does_not_concern_hears_nothing(alice: Tenant, charlie: Tenant, receiver: Hook) -> None:
    theirs = webhook(charlie, f"{receiver.url}/charlie")
    budget = make_budget(alice, used="9")
    assert (note(), percents(budget)) == (0, [])  # nobody of Alice's is to be told
    mine = webhook(alice, f"{receiver.url}/alice")
    Recipient.objects.filter(pk=mine.pk).update(active=False)
    assert note() == 0
    Recipient.objects.filter(pk=mine.pk).update(active=True)
    assert (note(), tell(receiver)) == (1, 1)  # of what was reached by then
    assert [got.line for got in receiver.got] == ["POST /alice HTTP/1.1"]
    assert not Delivery.objects.filter(recipient=theirs.pk).exists()


def test_four_workers_at_once_note_and_tell_everything_once(alice: Tenant, receiver: Hook) -> None:
    webhook(alice, receiver.url)
    keys = [make_key(alice.project, name=f"key-{number}")[0] for number in range(15)]
    for key in keys:
        make_budget(alice, used="10", project=None, key=key)
    together = threading.Barrier(4)

    def note_at_once() -> int:
        with database(app_url()) as worker:
            together.wait(30)
            return worker.execute(NOTE).rowcount

    def tell_at_once() -> int:
        together.wait(30)
        try:
            return deliver(Outside(Egress(parse_allow([receiver.url]))))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(one.result() for one in [pool.submit(note_at_once) for _ in range(4)]) == 30
        assert Crossing.objects.filter(organization=alice.organization.pk).count() == 30
        assert sum(one.result() for one in [pool.submit(tell_at_once) for _ in range(4)]) == 30
    assert rows(alice) == [("sent", 1, "")] * 30
    told = [
        (json.loads(got.body)["data"]["key"]["id"], json.loads(got.body)["data"]["percent"]) for got in receiver.got
    ]
    assert sorted(told) == sorted((str(key.pk), percent) for key in keys for percent in (80, 100))
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 30


# --- when it cannot be told -----------------------------------------------------------------------------------------


def test_a_message_is_tried_again_under_its_id_and_given_up(alice: Tenant, receiver: Hook) -> None:
    webhook(alice, receiver.url)
    make_budget(alice, used="8")
    receiver.answers = lambda got, out: out.write(says(500))
    note()
    for number in range(1, MOST_TRIES + 1):
        before = timezone.now()
        assert tell(receiver) == 1
        (row,) = Delivery.objects.filter(organization=alice.organization.pk)
        last = number == MOST_TRIES
        assert (row.status, row.tries) == ("given_up" if last else "waiting", number)
        assert (row.last_error, row.sent_at) == ("status 500", None)
        if not last:
            assert before + BACK_OFF[number - 1] <= row.next_try_at <= timezone.now() + BACK_OFF[number - 1]
            assert tell(receiver) == 0  # it is not due
        due(alice)
    assert tell(receiver) == 0
    assert len(receiver.got) == MOST_TRIES == 8
    assert len({(got.headers["webhook-id"], got.body) for got in receiver.got}) == 1
    assert timedelta(hours=24) < sum(BACK_OFF, timedelta()) < timedelta(days=2)


def test_a_worker_that_dies_in_the_middle_costs_a_try(alice: Tenant, receiver: Hook) -> None:
    webhook(alice, receiver.url)
    make_budget(alice, used="8")
    note()
    taken = {"most": 16, "busy": [], "lease": LEASE}
    with database(app_url()) as worker:
        assert len(worker.execute(CLAIM, taken).fetchall()) == 1
        assert worker.execute(CLAIM, taken).fetchall() == []
    assert (tell(receiver), rows(alice)) == (0, [("waiting", 1, "")])
    due(alice)
    assert (tell(receiver), rows(alice)) == (1, [("sent", 2, "")])
    # And one whose every worker has died is not tried for ever.
    Delivery.objects.filter(organization=alice.organization.pk).update(status="waiting", tries=MOST_TRIES)
    assert (tell(receiver), rows(alice)) == (0, [("given_up", MOST_TRIES, "the worker ended")])


def drip(got: Got, out: BinaryIO) -> None:
    """Answers a byte at a time, for ever."""
    out.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        out.write(b"X: 1\r\n")
        time.sleep(0.02)


def pour(got: Got, out: BinaryIO) -> None:
    """Answers a gigabyte."""
    out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    for _ in range(1000):
        out.write(bytes(1_000_000))


@pytest.mark.parametrize("who", ["slow", "redirecting", "nobody", "not HTTP", "inner", "huge"])
def test_a_receiver_that_means_no_good_harms_nothing(
    who: str, alice: Tenant, charlie: Tenant, receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "SECONDS", 0.4)
    with hook() as bad, hook() as inner:
        moved = says(307, f"Location: {inner.url}/secret")
        bad.answers = {"slow": drip, "huge": pour}.get(
            who, lambda got, out: out.write(moved if who == "redirecting" else b"hello\r\n\r\n")
        )
        url = f"{inner.url}/admin" if who == "inner" else "http://127.0.0.1:1/" if who == "nobody" else bad.url
        webhook(alice, url)
        webhook(charlie, receiver.url)
        for tenant in (alice, charlie):
            make_budget(tenant, used="8")
        assert note() == 2
        allowed = ["http://127.0.0.1:1", bad.url, receiver.url]
        began = time.monotonic()
        with the_worker():
            assert deliver(Outside(Egress(parse_allow(allowed)))) == 2
        assert time.monotonic() - began < 5
        assert rows(charlie) == [("sent", 1, "")] and len(receiver.got) == 1
        assert inner.got == []
        ((status, tries, error),) = rows(alice)
        assert (status, tries) == (("sent" if who == "huge" else "waiting"), 1)  # of an answer only the status counts
        assert error.startswith(
            {
                "slow": "no answer within 0.4 s",
                "redirecting": "status 307",
                "nobody": "not connected",
                "not HTTP": "illegal status line",
                "inner": "not dialled: only https is dialled",
                "huge": "",
            }[who]
        )


def test_receivers_that_hang_keep_nobody_elses_waiting(
    alice: Tenant, charlie: Tenant, receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "SECONDS", 0.4)
    with hook() as bad:
        bad.answers = drip
        for number in range(10):
            webhook(alice, f"{bad.url}/{number}")
        webhook(charlie, receiver.url)
        for tenant in (alice, charlie):
            make_budget(tenant, used="8")
        note()
        others: list[int] = []

        def count_others(got: Got, out: BinaryIO) -> None:
            others.append(len(bad.got))
            out.write(says(200))

        receiver.answers = count_others
        with database(app_url()) as worker, worker.transaction(force_rollback=True):
            for busy, most in ([], 3), ([alice.organization.pk], 1), ([charlie.organization.pk], 2):
                taken = worker.execute(CLAIM, {"most": 16, "busy": busy, "lease": LEASE}).fetchall()
                assert len(taken) == most
                worker.execute("update billing_delivery set next_try_at = created_at where status = 'waiting'")
        assert tell(bad, receiver) == 11
        assert rows(charlie) == [("sent", 1, "")] and others[0] <= 2  # beside the first ones of Alice's
        assert rows(alice) == [("waiting", 1, "no answer within 0.4 s")] * 10


def test_who_is_gone_is_left_alone(alice: Tenant, receiver: Hook) -> None:
    receiver.answers = lambda got, out: out.write(says(410))
    gone, off = webhook(alice, f"{receiver.url}/gone"), webhook(alice, f"{receiver.url}/off")
    deleted = webhook(alice, f"{receiver.url}/deleted")
    make_budget(alice, used="8")
    assert note() == 3
    Recipient.objects.filter(pk=off.pk).update(active=False)
    deleted.delete()
    assert tell(receiver) == 3
    found = {one.recipient: (one.status, one.last_error) for one in Delivery.objects.filter(tries=1)}
    assert found[gone.pk] == ("given_up", "status 410")
    assert found[off.pk] == ("given_up", "the recipient is off or gone")
    assert [got.line for got in receiver.got] == ["POST /gone HTTP/1.1"]


def test_a_secret_that_does_not_open_signs_nothing(alice: Tenant, charlie: Tenant, receiver: Hook) -> None:
    webhook(alice, receiver.url)
    # A ciphertext that was copied onto another row does not open there.
    sealed = webhook(charlie, f"{receiver.url}/charlie").sealed
    Recipient.objects.filter(organization=alice.organization).update(sealed=sealed)
    make_budget(alice, used="8")
    note()
    tell(receiver)
    assert rows(alice) == [("waiting", 1, "the secret cannot be opened: type it again")]
    assert receiver.got == []


def test_a_mail_server_that_is_not_there_or_refuses_is_tried_again(
    alice: Tenant, post: Mailbox, settings: LazySettings
) -> None:
    mail(alice, "finance@tenant.example")
    make_budget(alice, used="8")
    note()
    post.says = "451 later"
    for tries, host, port, error in (
        (1, "127.0.0.1", post.port, "the mail server: (451, b'later')"),
        (2, "127.0.0.1", 1, "the mail server: [Errno 111] Connection refused"),
        (3, "", post.port, "no mail is sent: EMAIL_HOST is not set"),
    ):
        settings.EMAIL_HOST, settings.EMAIL_PORT = host, port
        tell()
        assert rows(alice) == [("waiting", tries, error)]
        due(alice)
    settings.EMAIL_HOST, post.says = "127.0.0.1", "250 taken"
    tell()
    assert rows(alice) == [("sent", 4, "")] and len(post.mails) == 1


def test_what_is_old_is_forgotten_but_not_that_it_was_told(alice: Tenant) -> None:
    mail(alice, "finance@tenant.example")
    for_ever, monthly = make_budget(alice, used="8"), make_budget(alice, used="8", period="month")
    assert note() == 2
    old = timezone.now() - timedelta(days=RETENTION_DAYS, minutes=1)
    recent = make_delivery(mail(alice, "other@tenant.example"), created_at=old + timedelta(hours=1))
    organization = alice.organization.pk
    Delivery.objects.filter(organization=organization).exclude(pk=recent.pk).update(created_at=old)
    Crossing.objects.filter(organization=organization).update(crossed_at=old)
    with the_worker():
        prune_crossings()
    assert list(Delivery.objects.filter(organization=organization)) == [recent]
    assert (percents(for_ever), percents(monthly)) == ([80], [])


# --- secrets --------------------------------------------------------------------------------------------------------


def test_a_signature_is_that_of_the_scheme() -> None:
    """The example of the scheme's own text."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert signed(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_is_long_enough_and_of_its_form() -> None:
    assert len(key_of(new_secret())) == 32 and new_secret() != new_secret()
    for size in (LEAST, MOST):
        assert len(key_of(PREFIX + base64.b64encode(bytes(size)).decode())) == size
    short, long = (PREFIX + base64.b64encode(bytes(size)).decode() for size in (LEAST - 1, MOST + 1))
    for wrong in ("", PREFIX, short, long, NOBODYS, new_secret().removeprefix(PREFIX), PREFIX + "~" * 40):
        with pytest.raises(UnusableSecret) as caught:
            key_of(wrong)
        assert not wrong or wrong not in str(caught.value) or wrong == PREFIX
