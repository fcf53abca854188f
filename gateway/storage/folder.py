"""A folder of this machine below EXPORT_DIR: a file is there whole under its name, or not at all."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

from gateway.storage.refusal import Refused


class Folder:
    """The folder `root`, which is EXPORT_DIR."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def get(self, name: str, most: int) -> bytes | None:
        """What is under a name, if anything is. Raises `Refused` for more than `most` bytes, OSError."""
        try:
            with self._path(name).open("rb") as file:
                content = file.read(most + 1)
        except FileNotFoundError:
            return None
        if len(content) > most:
            raise Refused(f"{name} is there, and no manifest")
        return content

    def put(self, name: str, file: BinaryIO, size: int) -> None:
        """Puts `size` bytes under a name, in place of what was there. Raises `Refused`, OSError."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        with open(part, "wb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as output:
            shutil.copyfileobj(file, output, 1 << 20)
            output.flush()
            os.fsync(output.fileno())
        part.replace(path)
        _keep(path.parent)

    def _path(self, name: str) -> Path:
        """Raises `Refused` for what lies elsewhere, by a link say."""
        path = self._root / name
        if not path.parent.resolve().is_relative_to(self._root):
            raise Refused(f"{name} is not below EXPORT_DIR")
        return path


def _keep(folder: Path) -> None:
    """A name is on the disk once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
