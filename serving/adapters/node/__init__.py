"""The node agent: what jobs hold is measured and reported; jobs that `interfere run` started are warned and ended."""
