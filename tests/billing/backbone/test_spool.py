"""The spool: what it acknowledged is sent, whoever dies; what it could not write, it says; others' are left alone."""

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from billing.backbone.connections import Connections, DatabaseAway
from billing.backbone.settlement import Settler
from billing.backbone.spool import Line, Spool, SpoolFull
from billing.models import Budget, Hold, Usage
from tests.stage.backbone import backbone, books, database, owner_url, run, settled, transactions, wanted
from tests.stage.cast import Tenant

pytestmark = pytest.mark.backbone


class Receiver:
    """Where lines are sent to; away while `away` is set."""

    def __init__(self) -> None:
        self.away = False
        self.lines: list[Line] = []

    async def send(self, lines: list[Line]) -> None:
        """Takes lines, or raises."""
        if self.away:
            raise DatabaseAway("away")
        self.lines += lines


@contextmanager
def spool(directory: Path) -> Iterator[Spool]:
    """A spool of a process of its own."""
    made = Spool(directory, uuid4())
    try:
        yield made
    finally:
        made.close()


def leave_behind(directory: Path, data: bytes) -> Path:
    """The file of a dead process."""
    path = directory / f"{uuid4()}.spool"
    path.write_bytes(data)
    return path


async def test_a_line_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    with spool(tmp_path / "new") as mine:
        await asyncio.gather(*(mine.put(b'{"line":%d}' % number) for number in range(3)))
        assert mine.path.read_bytes() == b'{"line":0}\n{"line":1}\n{"line":2}\n'
        assert mine.lines == 3
        assert oct(mine.path.stat().st_mode & 0o777) == "0o600"
        assert oct(mine.directory.stat().st_mode & 0o777) == "0o700"


async def test_it_sends_its_lines_once_and_is_empty_then(tmp_path: Path) -> None:
    receiver = Receiver()
    with spool(tmp_path) as mine:
        lines = [b'{"line":%d}' % number for number in range(700)]
        await asyncio.gather(*map(mine.put, lines))
        assert await mine.drain(receiver.send) == 700
        assert receiver.lines == lines
        assert (mine.lines, mine.path.stat().st_size) == (0, 0)
        assert await mine.drain(receiver.send) == 0
    assert os.listdir(tmp_path) == []


async def test_lines_stay_while_nobody_takes_them(tmp_path: Path) -> None:
    receiver = Receiver()
    with spool(tmp_path) as mine:
        await mine.put(b"{}")
        receiver.away = True
        with pytest.raises(DatabaseAway):
            await mine.drain(receiver.send)
        assert mine.lines == 1
        receiver.away = False
        assert await mine.drain(receiver.send) == 1
    assert receiver.lines == [b"{}"]


async def test_lines_written_while_it_drains_are_sent_next(tmp_path: Path) -> None:
    receiver = Receiver()
    with spool(tmp_path) as mine:

        async def send_and_write(lines: list[Line]) -> None:
            await receiver.send(lines)
            await mine.put(b'{"line":"meanwhile"}')

        await mine.put(b'{"line":"first"}')
        assert await mine.drain(send_and_write) == 1
        assert mine.lines == 1
        # The first one is not sent again, though it is still in the file.
        assert await mine.drain(receiver.send) == 1
        assert mine.path.stat().st_size == 0
    assert receiver.lines == [b'{"line":"first"}', b'{"line":"meanwhile"}']


async def test_a_drain_that_was_cancelled_while_it_empties_the_file_hides_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go, empty = threading.Event(), threading.Event(), os.ftruncate

    def empties_late(file: int, size: int) -> None:
        reached.set()
        assert go.wait(10)
        empty(file, size)

    receiver = Receiver()
    with spool(tmp_path) as mine:
        await mine.put(b'{"line":0}')
        monkeypatch.setattr(os, "ftruncate", empties_late)
        first = asyncio.create_task(mine.drain(receiver.send))
        assert await asyncio.to_thread(reached.wait, 10)
        first.cancel()
        written = mine.put(b'{"line":1}')
        second = asyncio.create_task(mine.drain(receiver.send))
        await asyncio.sleep(0)
        go.set()
        await written
        assert await second == 1
        assert receiver.lines == [b'{"line":0}', b'{"line":1}']
        assert mine.path.read_bytes() == b""
        assert mine.lines == 0


async def test_a_dead_process_file_is_sent_and_removed(tmp_path: Path) -> None:
    receiver = Receiver()
    path = leave_behind(tmp_path, b'{"line":1}\n{"line":2}\n\n\n')
    with spool(tmp_path) as mine:
        assert await mine.drain(receiver.send) == 2
    assert receiver.lines == [b'{"line":1}', b'{"line":2}']
    assert not path.exists()


async def test_a_torn_last_line_was_never_acknowledged(tmp_path: Path) -> None:
    receiver = Receiver()
    leave_behind(tmp_path, b'{"line":1}\n{"lin')
    with spool(tmp_path) as mine:
        assert await mine.drain(receiver.send) == 1
    assert receiver.lines == [b'{"line":1}']


async def test_a_dead_process_file_stays_while_nobody_takes_it(tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.away = True
    path = leave_behind(tmp_path, b"{}\n")
    with spool(tmp_path) as mine:
        with pytest.raises(DatabaseAway):
            await mine.drain(receiver.send)
        assert path.read_bytes() == b"{}\n"
        receiver.away = False
        assert await mine.drain(receiver.send) == 1


async def test_a_living_process_file_is_left_alone(tmp_path: Path) -> None:
    receiver = Receiver()
    with spool(tmp_path) as theirs, spool(tmp_path) as mine:
        await theirs.put(b"{}")
        assert await mine.drain(receiver.send) == 0
        assert theirs.path.read_bytes() == b"{}\n"
    assert receiver.lines == []


async def test_two_processes_that_start_and_drain_at_once_lose_no_file(tmp_path: Path) -> None:
    """A file that has a name and no lock would be taken for a dead process's, and be removed under its owner."""
    receiver = Receiver()
    with spool(tmp_path) as mine:
        for _ in range(50):
            starting = asyncio.get_running_loop().run_in_executor(None, Spool, tmp_path, uuid4())
            await mine.drain(receiver.send)
            other = await starting
            await mine.drain(receiver.send)
            assert os.stat(other.path).st_ino == os.fstat(other._file).st_ino
            other.close()


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: to a writer it is a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def is_full(mine: Spool) -> bool:
    """What the gateway asks before it takes paid work."""
    return mine.full


async def test_a_full_disk_is_told_and_found_to_be_well_again(tmp_path: Path) -> None:
    receiver = Receiver()
    with spool(tmp_path) as mine:
        await mine.put(b'{"line":"good"}')
        with files_end_at(100):
            with pytest.raises(SpoolFull):
                await mine.put(b'{"line":"%s"}' % (b"x" * 200))
            assert is_full(mine)
            # Half a batch must not be taken for lines that were acknowledged.
            assert mine.path.read_bytes() == b'{"line":"good"}\n'
            await mine.look()
            assert is_full(mine)
        await mine.look()
        assert not is_full(mine)
        await mine.put(b'{"line":"again"}')
        await mine.drain(receiver.send)
    assert receiver.lines == [b'{"line":"good"}', b'{"line":"again"}']


async def test_a_disk_that_is_not_full_is_not_looked_at_twice(tmp_path: Path) -> None:
    with spool(tmp_path) as mine:
        await mine.put(b"{}")
        await mine.look()
        assert not mine.full
        assert mine.path.read_bytes() == b"{}\n"
        await mine.drain(Receiver().send)


NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


def test_a_settlement_while_the_database_is_away_reaches_it_from_the_spool(alice: Tenant, tmp_path: Path) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    item = wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path / "a") as here:
            held = await here.admission.hold(item)
            with spool(tmp_path / "b") as theirs:
                away = Settler(Connections(NOWHERE), theirs, here.admission.forget)
                await away.settle(settled(item, held))
                assert theirs.lines == 1
            # Its file is nobody's now, and its lease has not ended: the next one over its folder settles first.
            async with backbone(tmp_path / "b") as next_one:
                assert await next_one.settler.drain_spool() == 1

    run(scenario())
    assert Usage.objects.get(id=item.id).status == "completed"
    assert transactions(item.id) == [("void", Decimal(0))]
    assert books(alice.organization).problems() == []


def test_what_neither_database_nor_disk_took_is_tried_again(alice: Tenant, tmp_path: Path) -> None:
    """Its client was told that it failed; what it used is accounted for as soon as somebody takes it."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    item = wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path / "a") as here:
            held = await here.admission.hold(item)
            with spool(tmp_path / "b") as theirs:
                away = Settler(Connections(NOWHERE), theirs, here.admission.forget)
                with files_end_at(0), pytest.raises(SpoolFull):
                    await away.settle(settled(item, held))
                assert theirs.lines == 0
                away.try_again()
                await away.finish()
                assert theirs.lines == 1
            async with backbone(tmp_path / "b") as next_one:
                assert await next_one.settler.drain_spool() == 1

    run(scenario())
    assert Usage.objects.get(id=item.id).status == "completed"
    assert not Hold.objects.filter(id=item.id).exists()
    assert books(alice.organization).problems() == []


def test_a_full_disk_that_says_so_before_the_database_fails_is_what_is_told(alice: Tenant, tmp_path: Path) -> None:
    rule = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    item = wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            with database(owner_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("select 1 from billing_counter where subject = %s for update", [rule.subject])
                # The statement is given up on long after the disk had its chance.
                with files_end_at(0), pytest.raises(SpoolFull):
                    await here.settler.settle(settled(item, held))
                assert here.spool.lines == 0
                blocker.execute("rollback")

    run(scenario())
    assert Usage.objects.get(id=item.id).status == "completed"
    assert books(alice.organization).problems() == []


def test_a_commit_that_is_slow_is_overtaken_by_the_spool_and_counts_once(alice: Tenant, tmp_path: Path) -> None:
    rule = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    item = wanted(alice.key)

    async def scenario() -> Any:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            with database(owner_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("select 1 from billing_counter where subject = %s for update", [rule.subject])
                await here.settler.settle(settled(item, held))  # durable, though not in the database
                lines = here.spool.lines
                blocker.execute("rollback")
            await here.settler.drain_spool()
            return lines

    assert run(scenario()) == 1
    assert transactions(item.id) == [("void", Decimal(0))]
    assert books(alice.organization).problems() == []
