"""Worker processes that compute decisions, so that a long decision takes no time from predictions and health checks."""
