"""Policies, lists and limits that change while many ask: X4. Nothing runs under half of one word and half of another.

A generation keeps what its policy said with its plan, and so tells under which one it ran. Of the lists of its key it
keeps nothing: these go by when a request was sent.
"""

from collections.abc import Callable, Sequence

import pytest

from billing.models import Limit, Usage
from routing.models import Policy
from tests.contention.changes import Change, ask_while_changing, change
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, run
from tests.stage.cast import Tenant, make_key
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider

pytestmark = pytest.mark.backbone

FLIPS = scaled(10, 100)
REQUESTS = scaled(300, 5000)
HEARD_WITHIN = scaled(5.0, 1.0)  # seconds; a machine that runs other tests beside is no measure
TIMEOUT = 1000  # seconds, and one more for each version: a policy's number that changes nothing else


def test_each_request_runs_under_one_version_of_its_policy(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, figures: Figures
) -> None:
    """By turns one of two providers is the only one that a project may use."""
    providers = [make_provider(simulated.base_url) for _ in range(2)]
    names = [f"policy-{provider.slug}?tokens=3" for provider in providers]
    model = make_model(providers[0], names[0])
    add_offer(model, providers[1], names[1])
    slugs = [provider.slug for provider in providers]
    rule = Policy.objects.create(
        level="project", project=alice.project, only_providers=slugs[:1], total_timeout=TIMEOUT
    )
    synchronize(*fleet)

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model.slug, stream=number % 2 == 0)

    def flip(number: int) -> Change:
        version = number + 1
        return change(
            "update routing_policy set only_providers = array[%s], total_timeout = %s where id = %s",
            slugs[version % 2], TIMEOUT + version, rule.pk,
        )  # fmt: skip

    journal, flips = run(ask_while_changing(fleet, REQUESTS, FLIPS, ask, flip))
    assert all(answer.final for answer in journal if answer.status != 503)
    rows = list(Usage.objects.filter(organization=alice.organization.pk, error=""))
    assert len(rows) == sum(answer.final for answer in journal)
    broken, late = 0, 0.0
    for row in rows:
        assert row.plan is not None
        said = row.plan["policy"]
        version = round(said["total_timeout"]) - TIMEOUT
        broken += (row.provider, said["only_providers"], row.plan["by"]) != (
            slugs[version % 2],
            [slugs[version % 2]],
            "default",
        )
        if version:
            assert row.created_at > flips[version - 1].since
        if version < FLIPS:
            late = max(late, (row.created_at - flips[version].at).total_seconds())
    versions = {round(row.plan["policy"]["total_timeout"]) - TIMEOUT for row in rows if row.plan}
    assert 0 in versions and len(versions) > FLIPS / 2  # the last may bind when all is asked
    assert broken == 0
    assert late < HEARD_WITHIN
    asked = [line["model"] for line in simulated.bill() if line["model"] in names]
    assert sorted(asked) == sorted(names[slugs.index(row.provider)] for row in rows)
    assert books(alice.organization).problems() == []
    figures("X4", rows_that_break_their_version=broken, seconds_that_an_old_one_was_used=round(late, 3))


@pytest.mark.parametrize(
    ("column", "word", "other", "status"),
    [("allowed_models", "", "no/other", 404), ("allowed_ips", "127.0.0.1", "192.0.2.7", 403)],
)
def test_what_is_taken_off_a_keys_list_is_refused(
    fleet: list[Gateway],
    simulated: SimulatedProvider,
    alice: Tenant,
    figures: Figures,
    column: str,
    word: str,
    other: str,
    status: int,
) -> None:
    """By turns its list has only the model that is asked for, or the address that it is asked from, and another one."""
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3").slug
    words = word or model, other
    key, secret = make_key(alice.project, name="listed", **{column: [words[0]]})
    synchronize(*fleet)

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, secret, model=model)

    def flip(number: int) -> Change:
        statement = f"update accounts_apikey set {column} = array[%s] where id = %s"  # noqa: S608
        return change(statement, words[(number + 1) % 2], key.pk)

    journal, flips = run(ask_while_changing(fleet, REQUESTS, FLIPS, ask, flip))
    assert {answer.status for answer in journal} - {503} == {200, status}
    found = [
        (answer.final, lag(answer, flips, lambda version: version % 2 == 0))
        for answer in journal
        if answer.status != 503
    ]
    late = max(seconds for _, seconds in found)
    assert late < HEARD_WITHIN
    paid = Usage.objects.filter(organization=alice.organization.pk, error="").count()
    assert paid == sum(final for final, _ in found)
    assert books(alice.organization).problems() == []
    accepted = sum(final and seconds > 0 for final, seconds in found)
    figures("X4", accepted_by_an_old_list=accepted, seconds_that_an_old_one_was_used=round(late, 3))


def lag(answer: Answer, flips: Sequence[Change], allows: Callable[[int], bool]) -> float:
    """How many seconds after the commit of a version that says otherwise a request was sent that was answered by the
    one before; 0: some version of its time says so.
    """
    accepted = answer.status == 200
    version = sum(flip.committed <= answer.sent for flip in flips)
    while version < len(flips) and flips[version].began < answer.ended and allows(version) != accepted:
        version += 1
    if allows(version) == accepted:
        return 0.0
    return answer.sent - flips[sum(flip.committed <= answer.sent for flip in flips) - 1].committed


def test_a_limit_that_is_lowered_binds_whoever_is_held_after_it(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, figures: Figures
) -> None:
    """By turns six and two requests may be open at once. Counted are those that the provider is at."""
    provider = make_provider(simulated.base_url)
    name = f"lowered-{provider.slug}?tokens=3&first=30ms"
    model = make_model(provider, name).slug
    values = [6, 2]
    rule = Limit.objects.create(organization=alice.organization, measure="open", value=values[0])
    synchronize(*fleet)

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model)

    def flip(number: int) -> Change:
        return change("update billing_limit set value = %s where id = %s", values[(number + 1) % 2], rule.pk)

    journal, flips = run(ask_while_changing(fleet, REQUESTS, FLIPS, ask, flip))
    assert {answer.status for answer in journal} <= {200, 429, 503}
    held = {row.upstream_id: row.created_at for row in Usage.objects.filter(organization=alice.organization.pk)}
    lines = [line for line in simulated.bill() if line["model"] == name]
    over, most = 0, dict.fromkeys(values, 0)
    for line in lines:
        begun = line["started"]
        at_once = sum(other["started"] <= begun < other["at"] for other in lines)
        # Whoever is at the provider holds a place, since before it was asked. So the limit was that of the moment that
        # its hold has, or one that came until it was asked.
        first = sum(flip.at <= held[line["id"]] for flip in flips)
        last = sum(flip.since.timestamp() <= begun for flip in flips)
        allowed = max(values[version % 2] for version in range(first, last + 1))
        over = max(over, at_once - allowed)
        most[allowed] = max(most[allowed], at_once)
    assert over == 0
    assert most[2] == 2 and most[6] > 2
    assert books(alice.organization).problems() == []
    figures("X4", over_a_lowered_limit=over)
