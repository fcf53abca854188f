"""The shape of log lines: one JSON object a line, or a text for a person, with time, level and logger.

What others wrote is in some of them, so their length has a bound.
"""

import json
import logging
from datetime import UTC, datetime

MOST_TEXT = 2_000  # characters of a line's event
MOST_TRACE = 20_000  # and of a traceback


class Lines(logging.Formatter):
    """Shapes lines as `text`, or as JSON."""

    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "timestamp": moment(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage()[:MOST_TEXT],
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-MOST_TRACE:]
        if not self._text:
            return json.dumps(line, ensure_ascii=False)
        trace = "\n" + line["exception"] if record.exc_info else ""
        return f"{line['timestamp']} [{line['level']:<8}] {line['event']} [{line['logger']}]{trace}"


def formatter(text: bool) -> logging.Formatter:
    """The formatter of `logging`'s handlers; as `text`, or as JSON."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # says at INFO what is no news
    return Lines(text)


def moment(at: datetime) -> str:
    """A time in UTC, as lines have it."""
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
