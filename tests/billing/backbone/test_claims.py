"""Claims of idempotency keys: one of all twins has it, its answer comes with the settlement, none is left behind."""

import asyncio
import base64
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from billing.backbone.admission import Held
from billing.backbone.claims import Claim, Claimed
from billing.backbone.settlement import KEPT, Kept, encode
from billing.backbone.spool import AT_ONCE, BYTES_AT_ONCE, batches
from billing.ids import new_hex, new_id
from billing.models import KeptAnswer, KeptShare, Usage
from billing.tasks import prune
from tests.stage.backbone import backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant
from tests.stage.product import until

pytestmark = pytest.mark.backbone


def claim(tenant: Tenant, generation: str = "", **changes: Any) -> Claim:
    """A claim of a word of its own."""
    row: dict[str, Any] = {
        "id": new_id(),
        "fingerprint": UUID(int=7),
        "organization": tenant.organization.pk,
        "key": tenant.key.pk,
        "generation": generation or new_hex(),
    }
    return Claim(**{**row, **changes})


def twin(item: Claim, **changes: Any) -> Claim:
    """The same request, sent again."""
    return Claim(item.id, changes.get("fingerprint", item.fingerprint), item.organization, item.key, new_hex())


def state(item: Claim) -> tuple[str, bytes | None] | None:
    """What the table has."""
    row = KeptAnswer.objects.filter(pk=item.id).first()
    return None if row is None else (row.state, None if row.content is None else bytes(row.content))


def test_one_of_two_processes_has_it_whatever_the_order(alice: Tenant, tmp_path: Path) -> None:
    items = [claim(alice) for _ in range(60)]
    twins = [twin(item) for item in items[::-1]]

    async def scenario() -> list[Claimed]:
        async with backbone(tmp_path / "a") as one, backbone(tmp_path / "b") as other:
            asking = [one.claims.claim(item) for item in items] + [other.claims.claim(item) for item in twins]
            found = await asyncio.gather(*asking)
            for here, had in ((one, items), (other, twins)):
                assert await here.claims.give_back_strays() == 0  # they are answered for
                for item in had:
                    here.claims.give_back(item)
            return found

    found = run(scenario())
    for at, item in enumerate(items):
        mine, others = found[at], found[-1 - at]
        assert sorted([mine.verdict, others.verdict]) == ["claimed", "running"]
        assert mine.generation == others.generation in (item.generation, twins[-1 - at].generation)
    assert not KeptAnswer.objects.filter(organization=alice.organization.pk).exists()


def test_an_answer_is_kept_with_its_settlement_or_not_at_all(alice: Tenant, tmp_path: Path) -> None:
    good, poison, long = wanted(alice.key), wanted(alice.key), wanted(alice.key)
    items = [claim(alice, item.id) for item in (good, poison, long)]

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            for item in items:
                assert (await here.claims.claim(item)).verdict == "claimed"
            held = [await here.admission.hold(item) for item in (good, poison, long)]
            told = [Kept(items[0].id, b"told"), Kept(items[1].id, b"never"), Kept(items[2].id, None)]
            charges = ("0.25", "10000000000000", "0.5")  # the second is more than the column has
            rows = zip((good, poison, long), held, charges, told, strict=True)
            await asyncio.gather(
                *(here.settler.settle(settled(item, one, charge, kept=kept)) for item, one, charge, kept in rows)
            )
            assert await other_says(here, items[0]) == ("done", good.id)
            assert await other_says(here, items[0], fingerprint=UUID(int=8)) == ("other", good.id)
            assert await other_says(here, items[2]) == ("lost", long.id)

    async def other_says(here: Any, item: Claim, **changes: Any) -> tuple[str, str]:
        found = await here.claims.claim(twin(item, **changes))
        return found.verdict, found.generation

    run(scenario())
    # What the tables do not take is nobody's charge, and its claim is given back.
    assert [state(item) for item in items] == [("done", b"told"), None, ("lost", None)]
    assert Usage.objects.filter(pk__in=[good.id, long.id]).count() == 2
    assert books(alice.organization).sums().charge == Fraction(3, 4)
    share = KeptShare.objects.get(organization=alice.organization.pk)
    assert share.bytes == 2 * 500 + len(b"told")


def test_what_another_has_taken_over_is_not_kept(alice: Tenant, tmp_path: Path) -> None:
    wish = wanted(alice.key)
    item = claim(alice, wish.id)
    second = twin(item)

    async def scenario() -> None:
        async with backbone(tmp_path / "a") as dead, backbone(tmp_path / "b") as alive:
            assert (await dead.claims.claim(item)).verdict == "claimed"
            held = await dead.admission.hold(wish)
            assert (await alive.claims.claim(twin(item))).verdict == "running"
            await silent(dead.lease.id)
            assert (await alive.claims.claim(twin(item))).verdict == "running"  # it holds: its settlement may come
            await alive.connections.call("select billing_give_up(%s::uuid[])", [[wish.id]])  # its hold is ended
            assert (await alive.claims.claim(second)) == Claimed("claimed", second.generation)
            assert (await alive.claims.claim(second)) == Claimed("claimed", second.generation)  # sent again
            await dead.settler.settle(settled(wish, held, "0.25", kept=Kept(item.id, b"late")))
            await alive.claims.give_back_strays()

    async def silent(lease: UUID) -> None:
        with database(owner_url()) as owner:
            owner.execute(
                "update billing_lease set heartbeat_at = clock_timestamp() - interval '21 seconds' where id = %s",
                [lease],
            )

    run(scenario())
    row = KeptAnswer.objects.filter(pk=item.id).first()
    assert row is None or (row.state, row.generation.hex) == ("running", second.generation)
    assert Usage.objects.get(pk=wish.id).charge == Decimal("0.25")  # what it owes is owed


def test_a_claim_of_a_process_that_is_buried_is_free(alice: Tenant, tmp_path: Path) -> None:
    item = claim(alice)
    second = twin(item)

    async def scenario() -> None:
        async with backbone(tmp_path / "b") as alive:
            async with backbone(tmp_path / "a") as dead:
                assert (await dead.claims.claim(item)).verdict == "claimed"
                with database(owner_url()) as owner:
                    owner.execute("delete from billing_lease where id = %s", [dead.lease.id])
                assert (await alive.claims.claim(second)).verdict == "claimed"
            assert (await alive.claims.claim(twin(item))).verdict == "running"  # nor has its end given ours back

    run(scenario())


def test_who_does_not_wait_for_a_claim_leaves_none(alice: Tenant, tmp_path: Path) -> None:
    items = [claim(alice) for _ in range(20)]

    async def scenario() -> int:
        async with backbone(tmp_path) as here:
            for turns, item in enumerate(items):
                asking = asyncio.create_task(here.claims.claim(item))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if turns > 10:
                    await asyncio.sleep(0.0005 * (turns - 10))
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                if not asking.cancelled():
                    here.claims.give_back(item)  # it was faster
            await asyncio.to_thread(until, lambda: there() == 0)
            # And one whose answer was lost on its way.
            stray = claim(alice)
            await here.connections.call(
                "select * from billing_claim(%s, jsonb_build_array(jsonb_build_object('id', %s::text, 'fingerprint',"
                " %s::text, 'organization', %s::text, 'key', %s::text, 'generation', %s::text)), 0)",
                [here.lease.id, *map(str, (stray.id, stray.fingerprint, stray.organization, stray.key)), new_hex()],
            )
            assert there() == 1
            return await here.claims.give_back_strays()

    def there() -> int:
        with database(owner_url()) as owner:
            ((count,),) = owner.execute(
                "select count(*) from billing_keptanswer where organization = %s", [alice.organization.pk]
            ).fetchall()
        return int(count)

    assert run(scenario()) == 1
    assert not KeptAnswer.objects.filter(organization=alice.organization.pk).exists()


def test_long_answers_are_settled_in_statements_that_postgresql_can_take(alice: Tenant, tmp_path: Path) -> None:
    wishes = [wanted(alice.key) for _ in range(5)]
    items = [claim(alice, wish.id) for wish in wishes]
    content = bytes(range(256)) * 8192  # 2 MiB

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            await asyncio.gather(*map(here.claims.claim, items))
            held = await asyncio.gather(*map(here.admission.hold, wishes))
            rows = zip(wishes, held, items, strict=True)
            await asyncio.gather(
                *(
                    here.settler.settle(settled(wish, one, "0.1", kept=Kept(item.id, content)))
                    for wish, one, item in rows
                )
            )

    run(scenario())  # what was slower than its patience has gone through the spool
    assert [state(item) for item in items] == [("done", content)] * 5
    assert books(alice.organization).sums().generations == 5
    assert books(alice.organization).holds == []
    prune()
    assert KeptAnswer.objects.filter(organization=alice.organization.pk).count() == 5


def test_a_batch_has_so_many_lines_and_bytes() -> None:
    short, long = [b"x"] * (AT_ONCE + 1), [base64.b64encode(bytes(BYTES_AT_ONCE // 2))] * 2
    assert [len(batch) for batch in batches(short)] == [AT_ONCE, 1]
    assert [len(batch) for batch in batches([b"x", *long, b"x"])] == [2, 2]
    assert [len(batch) for batch in batches([bytes(2 * BYTES_AT_ONCE), b"x"])] == [1, 1]
    assert list(batches([])) == []


def test_a_line_says_by_its_end_whether_it_has_an_answer(alice: Tenant) -> None:
    wish = wanted(alice.key)
    held = Held(1, None, [], False, datetime.now(UTC))
    plain, kept = settled(wish, held), settled(wish, held, kept=Kept(new_id(), None))
    assert not encode(plain).endswith(KEPT) and b"kept" not in encode(plain)
    odd = settled(wish, held, kept=kept.kept, metadata={"a\0": "b"})
    assert encode(kept).endswith(KEPT) and encode(odd).endswith(KEPT)
