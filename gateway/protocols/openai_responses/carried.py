"""Items that travel in the id of another one, for clients that name items by their ids in place of sending them back.

By default such a client takes it that answers are kept, and its next request names what was said as `item_reference`.
Nothing is kept here. A stream's ids are told before what they stand for, so no item can carry itself; so its answers
end with one more item, a thought without words, whose id holds all items before it. The client names that one, too,
and what the others stand for is read from it. Nothing in it is a secret: the client has just been shown it.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from gateway.wire import strict_json

Item = dict[str, Any]

PREFIX = "rs_gw1."  # a dot is no character of the providers' own
MOST_BYTES = 256 * 1024  # of the items of one answer; a longer one is not carried
MOST_BYTES_READ = 4 * MOST_BYTES  # of the ids of one request: they are read while others wait
# How clients that need it name themselves in `User-Agent`.
REFERRING = (b"ai-sdk/", b"ai-sdk-")


class Unreadable(ValueError):
    """An id of ours that was changed, or more of them than are read; `at` is the place of its item in `input`."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def needed(user_agent: bytes) -> bool:
    """Whether a client is one of `REFERRING`."""
    return any(name in user_agent for name in REFERRING)


def carrier(items: Sequence[Item]) -> Item | None:
    """The item that carries `items`; None where there are none, or too much."""
    if not items or len(packed := strict_json.dumps(list(items))) > MOST_BYTES:
        return None
    return {"id": PREFIX + urlsafe_b64encode(packed).decode(), "type": "reasoning", "summary": []}


def frames(item: Item, at: int, number: int) -> bytes:
    """The two events that tell it, as output `at`, numbered from `number` on."""
    told = b""
    for name in ("added", "done"):
        kind = f"response.output_item.{name}"
        event = {"type": kind, "sequence_number": number, "output_index": at, "item": item}
        told += b"event: %b\ndata: %b\n\n" % (kind.encode(), strict_json.dumps(event))
        number += 1
    return told


def carries(item: Item) -> bool:
    """Whether an item of a client's, or a reference to one, is such a carrier."""
    id = item.get("id")
    return type(id) is str and id.startswith(PREFIX)


def unpacked(input: Sequence[Any]) -> dict[str, list[Item]]:
    """The items that the carriers among `input` hold, by their ids, in order: ids of two answers may be the same.

    Raises `Unreadable`.
    """
    found: dict[str, list[Item]] = {}
    length = 0
    for at, item in enumerate(input):
        if type(item) is not dict or not carries(item):
            continue
        length += len(item["id"])
        if length > MOST_BYTES_READ:
            raise Unreadable(at)
        try:
            held = strict_json.loads(b64decode(item["id"].removeprefix(PREFIX), altchars=b"-_", validate=True))
        except ValueError:
            raise Unreadable(at) from None
        if type(held) is not list or not all(map(_is_whole, held)):
            raise Unreadable(at)
        for one in held:
            found.setdefault(one["id"], []).append(one)
    return found


def _is_whole(item: Any) -> bool:
    return (
        type(item) is dict
        and type(item.get("id")) is str
        and type(item.get("type")) is str
        and item["type"] != "item_reference"
    )
