"""The shape of log lines: one JSON object a line, or a text for a person, with time, level and logger.

What others wrote is in some of them, so their length has a bound.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

MOST_TEXT = 2_000  # characters of a line's event
MOST_TRACE = 20_000  # and of a traceback


def formatter(text: bool) -> logging.Formatter:
    """The formatter of `logging`'s handlers; as `text`, or as JSON."""
    processors = structlog.processors
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # says at INFO what is no news
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            processors.TimeStamper(fmt="iso", utc=True),
            processors.format_exc_info,
            _bounded,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.dev.ConsoleRenderer(colors=False) if text else processors.JSONRenderer(ensure_ascii=False),
        ],
    )


def _bounded(logger: Any, name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["event"] = str(line["event"])[:MOST_TEXT]
    if "exception" in line:
        line["exception"] = str(line["exception"])[-MOST_TRACE:]
    return line
