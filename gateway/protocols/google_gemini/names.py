"""Names of functions that the other side would refuse, put into what it takes and back.

Google's may hold dots and colons and do not begin with a digit or a dash; a chat's are letters, digits, underscores and
dashes. Another name comes from the name alone, so it is the same in every turn and nothing has to be kept.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

MAX_NAME = 64  # on both sides

is_ours = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}").fullmatch  # as Google has them
is_chats = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_others = re.compile(r"[^a-zA-Z0-9_-]").sub


class Names:
    """Takes names to the other side (`there`) and brings them `back`. `fits` is that side's rule."""

    __slots__ = ("_back", "_fits")

    def __init__(self, fits: Callable[[str], Any], names: Iterable[str] = ()) -> None:
        self._fits = fits
        self._back: dict[str, str] = {}
        for name in names:
            self.there(name)

    def there(self, name: str) -> str:
        """The name as the other side takes it."""
        if self._fits(name):
            return name
        mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
        made = "_" + _others("_", name)[: MAX_NAME - 10] + "_" + mark
        self._back[made] = name
        return made

    def back(self, name: str) -> str:
        """The name as this side knows it."""
        return self._back.get(name, name)
