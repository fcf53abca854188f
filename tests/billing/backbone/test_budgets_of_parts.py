"""Budgets of a model, of an end user, and of each end user: each counts what is its own, exactly, at every commit."""

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import ApiKey
from billing.backbone.admission import Held, HoldItem, Refused
from billing.models import Attempt, Budget, Counter, Hold, Usage
from billing.tasks import prune
from tests.stage.backbone import admission, backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant

pytestmark = pytest.mark.backbone

EACH = "*"


def budget(tenant: Tenant, amount: str, period: str = "total", **fields: Any) -> Budget:
    """A hard budget of the organization, or of the given project or key."""
    return Budget.objects.create(organization=tenant.organization, period=period, amount=Decimal(amount), **fields)


def asked(key: ApiKey, model: str = "test/model", user: str = "", **changes: Any) -> HoldItem:
    """A wish for a hold of $1, not less, to a model and for an end user."""
    item = wanted(key, model=model, **{"min_cap": 100, **changes})
    item.facts["end_user"] = user
    return item


def hold(*items: HoldItem) -> list[Held | Refused]:
    """What becomes of wishes that come at once, alone; who is refused leaves nothing behind."""

    async def scenario() -> list[Held | Refused]:
        async with admission() as door:
            return await asyncio.gather(*map(door.hold, items), return_exceptions=True)  # type: ignore[arg-type]

    answers: list[Held | Refused] = run(scenario())
    for item, answer in zip(items, answers, strict=True):
        assert isinstance(answer, Held | Refused), answer
        if isinstance(answer, Refused):
            assert not Hold.objects.filter(id=item.id).exists()
            assert not Attempt.objects.filter(generation=item.id).exists()
    return answers


def refused(item: HoldItem) -> tuple[str, Any, Decimal | None, str, str | None]:
    """Of a refusal: verdict, whose, of how much, of which model and end user."""
    (answer,) = hold(item)
    assert isinstance(answer, Refused), answer
    return answer.verdict, answer.subject, answer.limit, answer.model, answer.end_user


def counters(tenant: Tenant) -> dict[tuple[str, str | None], tuple[Decimal, Decimal]]:
    """(used, held) of money by model and end user."""
    found = Counter.objects.filter(organization=tenant.organization.pk, measure="money")
    return {(c.model, c.end_user): (c.used, c.held) for c in found}


def test_a_models_budget_counts_its_calls_alone(alice: Tenant, charlie: Tenant) -> None:
    budget(alice, "1", model="test/dear", project=alice.project, key=alice.key)
    first, second = hold(asked(alice.key, "test/dear"), asked(alice.key, "test/plain"))
    assert isinstance(first, Held) and isinstance(second, Held)
    assert (first.money, first.hard, first.room) == (1, True, 1)
    assert (second.hard, second.room, second.counters) == (False, None, [])
    assert refused(asked(alice.key, "test/dear")) == ("credit", alice.key.pk, Decimal(1), "test/dear", None)
    assert isinstance(hold(asked(charlie.key, "test/dear"))[0], Held)
    assert counters(alice) == {("test/dear", None): (0, 1)}
    assert counters(charlie) == {}
