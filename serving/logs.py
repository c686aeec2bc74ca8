"""Log lines of the server: text for people, or one JSON object a line for a log store.

A call that logs with `extra={"fields": {...}}` adds those fields to the JSON object; the text of the line has them too.
"""

import json
import logging
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (unix seconds), level, logger, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        document: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def configure(log_format: str) -> None:
    """Log to standard error, as `text` or as `json`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
