"""Where an engine's files live and as whom it runs: PostgreSQL refuses to be root, yet root has to be served.

Run by an ordinary user everything stays in the state folder and in the environment. Run by root the engines
are `nobody`; what that user cannot reach is placed in a folder of ours under the system's temporary
directory.
"""

import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns, rmtree

from deploy.processes import as_account
from deploy.state import Account, StartError, own_folder


def unprivileged() -> Account | None:
    """The existing user that engines run as under root; None, to stay who we are, for anybody else."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise StartError(
            "PostgreSQL refuses to run as root and this system has no user `nobody`. "
            "Work as an ordinary user, or set DATABASE_URL and REDIS_URL."
        ) from None
    return Account(entry.pw_uid, entry.pw_gid)


def place_for(state: Path, account: Account | None) -> Path:
    """`state` where `account` can pass through it, else our folder for it under the temporary directory.

    The folder's name holds our user id and a digest of the state's path, so that neither users nor checkouts
    meet.
    """
    if can_use(account, [state]):
        return state
    name = f"meterline-{os.geteuid()}-{sha256(os.fsencode(state)).hexdigest()[:16]}"
    for base in dict.fromkeys([tempfile.gettempdir(), "/var/tmp"]):  # noqa: S108 - verified by own_folder
        mode = os.stat(base).st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            continue  # Anybody could rename our folder away and put theirs in its place.
        place = own_folder(Path(base, name), 0o711)
        if can_use(account, [place]):
            return place
    raise StartError(
        "PostgreSQL cannot run as root, and the user `nobody` can reach neither this checkout nor the "
        "temporary directory. Set METERLINE_STATE to a folder that every user may pass through."
    )


def packages_of(package: str) -> Path:
    """The folder an installed package lies in; it is not imported. Raises `StartError` when there is none."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise StartError(
            f"The embedded engines need the package {package}: run `make run`, which installs it, "
            "or set DATABASE_URL and REDIS_URL."
        )
    return Path(spec.origin).parent.parent


def programs(package: str, parts: Iterable[str], needed: Iterable[str], place: Path, account: Account | None) -> Path:
    """The folder `package` lies in, or a copy of its `parts` in `place`, where `account` can run programs.

    `needed` are patterns of files that must be usable there. The copy keeps the layout, since programs find
    their libraries by it, and has modes of its own; the installed files may be linked to a cache and are not
    touched.
    """
    source = packages_of(package)
    if can_use(account, [path for pattern in needed for path in source.glob(pattern)]):
        return source
    copy = place / f"{package}-{version(package)}"
    if not copy.is_dir():
        fresh = copy.with_name(copy.name + ".new")
        rmtree(fresh, ignore_errors=True)
        for part in parts:
            copytree(source / part, fresh / part, copy_function=copyfile, ignore=ignore_patterns("*.a", "include"))
        for path in (fresh, *fresh.rglob("*")):
            original = source / path.relative_to(fresh)
            path.chmod(0o755 if original.stat().st_mode & stat.S_IXUSR else 0o644)
        fresh.rename(copy)
    if not can_use(account, [path for pattern in needed for path in copy.glob(pattern)]):
        raise StartError(f"The user `nobody` cannot run programs in {copy}. Is it mounted with `noexec`?")
    return copy


def can_use(account: Account | None, paths: Iterable[Path]) -> bool:
    """Whether `account` can pass through each folder of `paths`, and read each file, and run each program.

    The kernel is asked as that user, so parents, access lists and mount options count. Us, None, can do
    everything.
    """
    if account is None:
        return True
    tests: list[str | Path] = []
    for path in paths:
        mode = path.stat().st_mode
        if mode & stat.S_IXUSR:
            tests += ["-x", path]
        if stat.S_ISREG(mode):
            tests += ["-r", path]
    asked = subprocess.run(
        ["/bin/sh", "-c", 'while [ $# -gt 0 ]; do test "$1" "$2" || exit 1; shift 2; done', "sh", *tests],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        **as_account(account),
    )
    return asked.returncode == 0
