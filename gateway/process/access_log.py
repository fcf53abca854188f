"""One line for a request that has been answered: who asked for what, how it ended, what it took. Never what was said.

`ACCESS_LOG` says of how many: `off`, `sampled` (one of a hundred, and whatever we could not do) or `on`; with LOG_LEVEL
at DEBUG it is all of them. A line is written at once, without the steps of `logging`: it costs some 10 us.
"""

import logging
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

from django.conf import settings

from accounts.callers import Caller
from gateway.wire import strict_json
from gateway.wire.log_lines import moment

OFF, SAMPLED, ON = CHOICES = ("off", "sampled", "on")
ONE_OF = 100
OUR_FAULT = 500

_kept: str = settings.ACCESS_LOG
if logging.getLogger().isEnabledFor(logging.DEBUG):
    _kept = ON
elif not logging.getLogger().isEnabledFor(logging.INFO):
    _kept = OFF
_numbers = count()


def is_wanted(status: int) -> bool:
    """Whether this request's line is to be written."""
    if _kept == SAMPLED:
        return status >= OUR_FAULT or not next(_numbers) % ONE_OF
    return _kept == ON


def write(request_id: str, path: str, caller: Caller | None, status: int, began: float, generation: Any | None) -> None:
    """Writes the line of a request. `began` is `time.monotonic()`, `generation` its usage row, if it has one."""
    line: dict[str, Any] = {
        "timestamp": moment(datetime.now(UTC)),
        "level": "info",
        "logger": "meterline.access",
        "event": "request",
        "id": request_id,
        "path": path[:200],
        "status": status,
        "ms": round((time.monotonic() - began) * 1000),
    }
    if caller is not None:
        line |= {"organization": caller.organization_slug, "key": str(caller.key), "key_name": caller.name}
    if generation is not None:
        line |= {
            "generation": generation.id,
            "model": generation.model,
            "outcome": generation.status,
            "prompt_tokens": generation.prompt_tokens,
            "completion_tokens": generation.completion_tokens,
        }
    with suppress(OSError):  # a full disk costs the line, not the answer
        sys.stderr.buffer.write(strict_json.dumps(line) + b"\n")
        sys.stderr.buffer.flush()
