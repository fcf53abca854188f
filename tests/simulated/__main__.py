"""`python -m tests.simulated`: serves until SIGTERM or SIGINT, then bills what is under way as aborted."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from . import __doc__ as manual
from .bill import Bill
from .server import Simulated


def arguments() -> argparse.Namespace:
    """The command line; `--help` prints the manual."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulated",
        description=manual,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=int, required=True, help="0 lets the kernel choose; the first line printed names it"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--bill", type=Path, metavar="FILE", help="append the bill here; default: kept in no named file"
    )
    parser.add_argument("--key", action="append", default=[], metavar="SECRET", help="take this secret; repeatable")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="folder that `script=NAME` reads from")
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="stop when standard input ends, as a parent's death ends it",
    )
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    """Runs the server until it is told to stop."""
    bill = Bill(options.bill)
    simulated = Simulated(bill, options.key, options.recordings)
    server, port = await simulated.listen(options.host, options.port)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.with_parent:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    print(f"listening on http://{options.host}:{port}", flush=True)
    await stop.wait()
    server.close()
    simulated.reset()
    bill.close()


def main() -> None:
    """The program."""
    uvloop.run(serve(arguments()))


if __name__ == "__main__":
    main()
