"""An SMTP server on a socket that keeps what it is sent: as much of RFC 5321 as a client needs."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage


class Mailbox(socketserver.ThreadingTCPServer):
    """`mails` came in; `says` is what it answers to the end of each (250: taken)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.port: int = self.server_address[1]
        self.mails: list[tuple[list[str], EmailMessage]] = []  # whom to, and what
        self.says = "250 taken"


class _Session(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self._say("220 mailbox")
        whom: list[str] = []
        while line := self.rfile.readline().strip().decode():
            verb = line.partition(" ")[0].upper()
            if verb == "RCPT":
                whom.append(line.partition("<")[2].partition(">")[0])
            if verb == "DATA":
                self._say("354 go on")
                lines = list(iter(self.rfile.readline, b".\r\n"))
                text = b"".join(one.removeprefix(b".") for one in lines)
                if self.server.says.startswith("250"):
                    self.server.mails.append((whom, message_from_bytes(text, policy=policy.default)))
                self._say(self.server.says)
            else:
                self._say("221 bye" if verb == "QUIT" else "250 ok")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """One that listens while the block runs."""
    with Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
