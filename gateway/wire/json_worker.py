"""`python -m gateway.wire.json_worker`: parses bodies for a gateway process, which no thread could do for it.

The scanner keeps the interpreter's lock from a string's first byte to its last, and so, in the gateway's own process,
its loop from turning: for a third of a second where a body has 30 MB.

On standard input come bodies, each behind its length and the most values that it may have, in 8 bytes each. To
standard output go, behind its length, a byte and what it says: the value, `marshal`led, or the words of a `BadJson` and
the key at fault.
"""

import marshal
import os
import signal
import sys
from typing import BinaryIO

from gateway.wire.strict_json import BadJson, loads

LENGTH = 8
VALUE, BAD = b"v", b"b"


def answer(body: bytes, most_values: int) -> bytes:
    """What is said of a body."""
    try:
        return VALUE + marshal.dumps(loads(body, most_values=most_values))
    except BadJson as error:
        return BAD + marshal.dumps((error.message, error.param))


def serve(incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Answers until there is nobody to answer."""
    while length := incoming.read(LENGTH):
        most_values = int.from_bytes(incoming.read(LENGTH))
        said = answer(incoming.read(int.from_bytes(length)), most_values)
        outgoing.write(len(said).to_bytes(LENGTH) + said)
        outgoing.flush()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its gateway, which drains first
    os.nice(5)  # the loop comes first
    serve(sys.stdin.buffer, sys.stdout.buffer)
