"""Other users of the machine, what belongs to them, and a Python they can run."""

import os
import pwd
import shutil
import sys
import tempfile
from pathlib import Path

from deploy.placing import can_use
from deploy.state import CHECKOUT, Account


def other_user() -> Account:
    """A user who is neither root nor us. Only root can become one."""
    entry = next(user for user in pwd.getpwall() if user.pw_name == "nobody")
    return Account(entry.pw_uid, entry.pw_gid)


def python_for(account: Account, folder: Path) -> tuple[Path, dict[str, str]]:
    """An interpreter that `account` can run, with the environment in which it finds our packages.

    Ours where they can reach it, else a copy below `folder`, which they can reach.
    """
    packages = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    if not can_use(account, [packages, *packages.glob("psycopg/__init__.py")]):
        packages = _opened(shutil.copytree(packages, folder / "site-packages", dirs_exist_ok=True))
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(packages),
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    if can_use(account, [Path(sys.executable).resolve()]):
        return Path(sys.executable), environment
    home = folder / "python"
    unneeded = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")
    for part in ("bin", "lib"):
        shutil.copytree(Path(sys.base_prefix, part), home / part, ignore=unneeded, dirs_exist_ok=True)
    interpreter = _opened(home) / "bin" / Path(sys.executable).resolve().name
    return interpreter, {**environment, "LD_LIBRARY_PATH": str(home / "lib")}


def not_ours(*more: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, user and group of everything that a start finds and must leave as it is.

    That is the checkout with its environment, the folders above, the temporary directory, and `more`.
    """
    leave_out = {".git", ".run", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    found = set(map(str, (*CHECKOUT.parents, tempfile.gettempdir(), *more)))
    for folder, folders, files in os.walk(CHECKOUT):
        folders[:] = sorted(set(folders) - leave_out)
        found |= {folder, *(f"{folder}/{name}" for name in files)}
    return {path: (at.st_mode, at.st_uid, at.st_gid) for path in found if (at := _status(path))}


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None  # Another test's, or an editor's, for a moment.


def copy_of_checkout(target: Path, account: Account | None = None) -> Path:
    """What a clone holds, in `target`: readable by everybody, owned by `account` (else us)."""
    leave_out = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "static")
    shutil.copytree(CHECKOUT, target, ignore=leave_out)
    if account:
        for path in (target, *target.rglob("*")):
            os.chown(path, account.uid, account.gid)
    return _opened(target)


def _opened(top: Path) -> Path:
    for path in (top, *top.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(0o755 if mode & 0o100 else 0o644)
    return top
