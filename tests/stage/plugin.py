"""Brings the engines up before Django reads its settings: a real PostgreSQL and Valkey, ours or the ones named by
`DATABASE_URL` and `REDIS_URL`. Loaded by `-p tests.stage.plugin`, since a conftest would come too late.

Each process that runs tests has engines of its own, or a database of its own on the ones named; the process that only
hands tests out to others (`-n`) has none.
"""

import gc
import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from deploy.engines import Engines

MOST_ENGINES = 32  # at once in one checkout
# "gw0" and so on where pytest-xdist runs several processes at once, else empty.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
named = bool(os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"))  # so nobody here may stop the engines
cleanup = ExitStack()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Sets the environment the product is tested in."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"
    os.environ["DATABASE_ROLE"] = "owner"  # whatever the product does runs in processes or roles of its own
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
    os.environ.setdefault("KEY_PEPPERS", secrets.token_urlsafe(32))
    os.environ.setdefault("SEALING_KEYS", urlsafe_b64encode(os.urandom(32)).decode())
    os.environ["INSECURE_COOKIES"] = "true"
    # The one authority that is trusted, whose key nobody has: to read the system's takes 40 ms a process and client.
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))
    hands_out = early_config.known_args_namespace.numprocesses and not WORKER
    if not (named or hands_out):
        os.environ.update(cleanup.enter_context(first_free_engines()).urls)
    # Django by itself: a plugin that sets it up brings each test eight fixtures, which cost more than most tests.
    import django
    from django.template import Template
    from django.test.utils import setup_test_environment

    django.setup()
    template: Any = Template
    render = template._render
    setup_test_environment(debug=False)
    template._render = render  # watched, the hundreds of templates of a page would each have its context copied
    if not hands_out:
        gc.disable()  # until everything is collected: nothing of it is garbage
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """Five for two cores: half of the time a test waits, for a provider that is silent, a deadline, another process.

    On one cluster that is named they share the roles, which have so many connections: one for a core.
    """
    cores = len(os.sched_getaffinity(0))
    return cores if os.environ.get("DATABASE_URL") else cores * 5 // 2


@pytest.hookimpl(trylast=True)  # after they were shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones begin each worker's share, so that none is left with one while the others have nothing to do."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    rest = [item for item in items if not item.get_closest_marker("long")]
    share, more = divmod(len(rest), workers)
    starts = [number * share + min(number, more) for number in range(workers + 1)]
    items[:] = [
        item
        for number in range(workers)
        for item in (*long[number::workers], *rest[starts[number] : starts[number + 1]])
    ]


def pytest_collection_finish() -> None:
    """What was collected stays, and is much: the garbage collector need not look through it, now or ever."""
    gc.freeze()
    gc.enable()


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """After Ctrl-C each worker has time to stop its processes and engines; by default it is killed after 10 seconds.

    In a fresh checkout each would besides rewrite the asserts of every test module for itself: it is done here, once.
    """
    from xdist.workermanage import NodeManager

    NodeManager.EXIT_TIMEOUT = 60
    named = [Path(argument.split("::")[0]) for argument in config.args]
    modules = [module for path in named for module in (path.rglob("test_*.py") if path.is_dir() else [path])]
    cores = len(os.sched_getaffinity(0))
    fork = get_context("fork")
    shares = [fork.Process(target=rewrite, args=(config, modules[core::cores])) for core in range(cores)]
    for share in shares:
        share.start()
    for share in shares:
        share.join()


def rewrite(config: pytest.Config, modules: Sequence[Path]) -> None:
    """Puts what pytest makes of test modules where it looks before it makes it."""
    from _pytest.assertion import rewrite as made

    for module in modules:
        folder = made.get_cache_dir(module)
        kept = folder / (module.stem + made.PYC_TAIL)
        if sys.dont_write_bytecode or not made.try_makedirs(folder) or made._read_pyc(module, kept):
            continue
        with suppress(SyntaxError):  # told by the worker that collects it
            source, code = made._rewrite_test(module, config)
            made._write_pyc(config.stash[made.assertstate_key], code, source, kept)


def first_free_engines() -> "Engines":
    """Engines on a folder that no other process holds, kept from run to run.

    PostgreSQL does not have the disk say that a commit has reached it, which takes five milliseconds of each: what
    survives a crash of the machine is nothing that a test could see. Engines that tests kill are started as always.
    """
    from deploy import postgres
    from deploy.engines import start
    from deploy.state import StateInUse, state_folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(postgres.SETTINGS, "fsync", "off")
        for number in range(1, MOST_ENGINES):
            try:
                return start(state_folder() / f"test-{number}")
            except StateInUse:
                continue
        return start(state_folder() / f"test-{MOST_ENGINES}")


def pytest_unconfigure() -> None:
    """Stops what was started."""
    cleanup.close()
