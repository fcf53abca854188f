"""Group commit: everything that is put is sent once, in order, together with what came meanwhile."""

import asyncio

import psycopg
import pytest

from billing.backbone.batches import IN_FLIGHT, MOST, GroupCommit
from billing.backbone.connections import Connections, DatabaseAway
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.product import until

pytestmark = pytest.mark.backbone


class Server:
    """What batches are sent to: it answers an item with itself, once `gate` is open."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_work = self.most_at_work = 0

    async def send(self, batch: list[int]) -> list[int]:
        """Answers a batch. Items below zero poison it, and above a million nobody answers."""
        self.batches.append(batch)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await self.gate.wait()
            if any(item > 10**6 for item in batch):
                raise DatabaseAway("away")
            if any(item < 0 for item in batch):
                raise ValueError("poison")
            return batch
        finally:
            self.at_work -= 1


async def test_one_after_the_other_is_answered() -> None:
    """Each is put at the very moment at which the batch before it ends."""
    server = Server()
    commits: GroupCommit[int, int] = GroupCommit(server.send)
    async with asyncio.timeout(10):
        assert [await commits.put(number) for number in range(100)] == list(range(100))


async def test_whatever_the_moment_of_a_put_it_is_answered() -> None:
    server = Server()
    commits: GroupCommit[int, int] = GroupCommit(server.send)

    async def client(number: int) -> list[int]:
        answers = []
        for turn in range(30):
            for _ in range((number + turn) % 7):
                await asyncio.sleep(0)
            answers.append(await commits.put(number * 100 + turn))
        return answers

    async with asyncio.timeout(20):
        found = await asyncio.gather(*(client(number) for number in range(20)))
    assert found == [[number * 100 + turn for turn in range(30)] for number in range(20)]
    assert sorted(item for batch in server.batches for item in batch) == sorted(x for answers in found for x in answers)


async def test_what_arrives_while_a_batch_is_in_flight_forms_the_next() -> None:
    server = Server()
    commits: GroupCommit[int, int] = GroupCommit(server.send)
    server.gate.clear()
    first = [commits.put(number) for number in range(3)]
    await asyncio.sleep(0.01)
    later = [commits.put(number) for number in range(3, 3 + MOST + 5)]
    await asyncio.sleep(0.01)
    server.gate.set()
    await asyncio.gather(*first, *later)
    assert server.batches[0] == [0, 1, 2]
    assert [item for batch in server.batches for item in batch] == list(range(3 + MOST + 5))
    assert max(map(len, server.batches)) == MOST
    assert server.most_at_work <= IN_FLIGHT


async def test_a_poisonous_item_fails_alone() -> None:
    commits: GroupCommit[int, int] = GroupCommit(Server().send)
    found = await asyncio.gather(*map(commits.put, (1, -2, 3)), return_exceptions=True)
    assert (found[0], found[2]) == (1, 3)
    assert isinstance(found[1], ValueError)


async def test_when_nobody_answers_all_are_told_and_none_is_sent_again() -> None:
    server = Server()
    commits: GroupCommit[int, int] = GroupCommit(server.send)
    found = await asyncio.gather(*map(commits.put, (1, 10**7, 3)), return_exceptions=True)
    assert [isinstance(answer, DatabaseAway) for answer in found] == [True] * 3
    assert server.batches == [[1, 10**7, 3]]


async def test_what_is_taken_back_in_time_is_not_sent() -> None:
    server = Server()
    commits: GroupCommit[int, int] = GroupCommit(server.send)
    server.gate.clear()
    running = [commits.put(number) for number in range(2 * MOST)]
    await asyncio.sleep(0.01)
    commits.put(-1).cancel()
    last = commits.put(10)
    server.gate.set()
    await asyncio.gather(*running, last)
    assert -1 not in [item for batch in server.batches for item in batch]


async def connected() -> Connections:
    """Connections with one that is idle."""
    connections = Connections(app_url())
    assert await connections.call("select 1", []) == [(1,)]
    return connections


async def test_an_idle_connection_that_has_died_is_replaced_unseen() -> None:
    connections = await connected()
    ((pid,),) = await connections.call("select pg_backend_pid()", [])
    with database(owner_url()) as owner:
        owner.execute("select pg_terminate_backend(%s, 5000)", [pid])
    ((other,),) = await connections.call("select pg_backend_pid()", [])
    assert other != pid
    await connections.close()


async def test_a_cancelled_call_leaves_no_answer_for_the_next() -> None:
    connections = await connected()
    sleeping = asyncio.create_task(connections.call("select 7 from pg_sleep(1)", []))
    await asyncio.to_thread(until, is_sleeping)
    sleeping.cancel()
    await asyncio.wait({sleeping})
    assert sleeping.cancelled()
    assert await connections.call("select 8", []) == [(8,)]
    await connections.close()


def is_sleeping() -> bool:
    """Whether some session sleeps, asked from any thread."""
    with database(owner_url()) as owner:
        return bool(owner.execute("select 1 from pg_stat_activity where query like '%7 from pg_sleep%'"
                                  " and pid <> pg_backend_pid() and state = 'active'").fetchall())  # fmt: skip


async def test_a_statement_that_takes_too_long_is_given_up() -> None:
    connections = await connected()
    with pytest.raises(DatabaseAway):
        await connections.call("select pg_sleep(10)", [])
    await connections.close()


@pytest.mark.parametrize(
    "query, raised",
    [
        ("select '{' ::text::jsonb", psycopg.DataError),
        ("select 1 / 0", psycopg.DataError),
        ("update billing_ledgerentry set amount = 1", DatabaseAway),  # a right is missing
        ("select no_such_function()", DatabaseAway),  # not migrated yet
    ],
)
async def test_what_was_sent_is_told_apart_from_the_databases_state(query: str, raised: type[Exception]) -> None:
    connections = await connected()
    with pytest.raises(raised):
        await connections.call(query, [])
    assert await connections.call("select 1", []) == [(1,)]
    await connections.close()


async def test_nowhere_is_away() -> None:
    connections = Connections("postgresql://nobody@127.0.0.1:9/nothing")
    with pytest.raises(DatabaseAway):
        await connections.call("select 1", [])
