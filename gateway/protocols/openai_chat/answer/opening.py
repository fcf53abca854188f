"""The first bytes of an answer: are they JSON or an event stream? A Content-Type is not asked, many servers lie."""

import re

_NOTHING = re.compile(rb"(?:[ \t\r\n]++|:[^\r\n]*+[\r\n])*+")  # Blanks and comments.
_BOM = b"\xef\xbb\xbf"


def opening(head: bytes) -> tuple[bool | None, bytes]:
    """Whether it is JSON, and the bytes from where that begins or, of a stream, is sure.

    None: not yet, since blanks, a byte order mark and comments say nothing; then the bytes belong before the next ones.
    """
    while True:
        nothing = _NOTHING.match(head)
        assert nothing is not None
        head = head[nothing.end() :]
        if head.startswith(b"{"):
            return True, head
        if len(head) < 3 and _BOM.startswith(head):
            return None, head
        if not head.startswith(_BOM):
            # A comment that has not ended may be long, and what it says is nothing.
            return (None, b":") if head.startswith(b":") else (False, head)
        head = head[3:]
