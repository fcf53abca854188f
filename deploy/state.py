"""What is kept between runs: private folders, remembered facts, and the lock that says who holds them.

Everything here is made by us, belongs to whoever runs it, and is refused when it belongs to somebody else.
Nothing that another hand made is ever given another mode or owner.
"""

import fcntl
import os
import shlex
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


class StartError(Exception):
    """A start that cannot go on. The message is for the person at the terminal and says what to do."""


class StateInUse(StartError):
    """Another living process holds this state folder."""


@dataclass(frozen=True)
class Account:
    """A user of this machine, by number: whom a process runs as, or who owns a folder."""

    uid: int
    gid: int


def state_folder() -> Path:
    """Where `make run` keeps its state: METERLINE_STATE, else `.run` in the checkout.

    A `.run` that another user made stays theirs; then it is a folder of our own inside, if they let us make
    one.
    """
    if named := os.environ.get("METERLINE_STATE"):
        return Path(named).absolute()
    shared = CHECKOUT / ".run"
    if shared.exists() and shared.stat().st_uid != os.geteuid():
        return shared / f"user-{os.geteuid()}"
    return shared


def own_folder(path: Path, mode: int = 0o700, owner: Account | None = None) -> Path:
    """`path` as a folder of `owner` (else of this process's user): made with `mode`, or found and verified.

    Found, it must be a real folder of that owner which not everybody can write to, so that no one who guessed the name
    can have put it there; its mode is left alone. Missing parents are made alike. Raises `StartError`.
    """
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        own_folder(path.parent, mode)
        return own_folder(path, mode, owner)
    except FileExistsError:
        if not (owner and _is_half_made(path)):
            return _verified(path, owner.uid if owner else os.geteuid())
    except OSError as error:
        raise StartError(
            f"{path} cannot be made ({error.strerror}). Set METERLINE_STATE to a folder of your own, "
            "or work in a clone of your own."
        ) from error
    # By descriptor: a name could be swapped for a link between making it and giving it away.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise StartError(f"{path} was replaced by another user while it was being made.")
        os.fchmod(handle, mode)  # The umask may have taken bits away.
        if owner:
            os.fchown(handle, owner.uid, owner.gid)
    finally:
        os.close(handle)
    return path


def _is_half_made(path: Path) -> bool:
    """Whether we were killed between making the folder and giving it away."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not any(path.iterdir())


def _verified(path: Path, uid: int) -> Path:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise StartError(f"{path} is in the way: it is not a folder. Remove it.")
    if found.st_uid != uid:
        raise StartError(
            f"{path} belongs to another user (uid {found.st_uid}). "
            "Set METERLINE_STATE to a folder of your own, or work in a clone of your own."
        )
    if found.st_mode & stat.S_IWOTH:
        raise StartError(f"{path} can be written to by everybody. Remove it, or take that right away.")
    return path


class FolderLock:
    """Holds a folder until `release` or the process's end, however it ends. Raises `StateInUse` if held."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 20).decode("ascii", "replace").strip()
            os.close(self._handle)
            raise StateInUse(f"{path.parent} is in use by process {holder}. Stop that one first.") from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let go. Harmless when already released."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def write_private(path: Path, values: Mapping[str, str], note: str = "") -> None:
    """`values` as `NAME=value` lines that a shell can source; mode 0600, never half written, durable."""
    lines = [f"# {note}\n"] if note else []
    lines += [f"{name}={shlex.quote(value)}\n" for name, value in values.items()]
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


class Memory:
    """Facts that outlive a run (passwords, ports): a private file of `NAME=value` lines, fit for a shell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._facts: dict[str, str] = {}
        if path.exists():
            words = shlex.split(path.read_text(), comments=True)
            self._facts = dict(word.split("=", 1) for word in words)

    def recall(self, name: str, make: Callable[[], str]) -> str:
        """The value of `name`; made once, and durable before it is returned."""
        if name not in self._facts:
            self.replace(name, make())
        return self._facts[name]

    def replace(self, name: str, value: str) -> None:
        """Remember `value` under `name` from now on."""
        if self._facts.get(name) != value:
            self._facts[name] = value
            write_private(self._path, self._facts)

    def all(self) -> dict[str, str]:
        """A copy of every fact."""
        return dict(self._facts)
