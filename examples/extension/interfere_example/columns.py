"""A column for estimators, and a split: both functions of the DataFrame of pairs."""


def same_family(frame):
    """Return 1 where both jobs have the same first word in their names, such as `gpt-train` and `gpt-decode`."""
    victim, neighbour = (frame.index.get_level_values(side).str.split("-").str[0] for side in ("victim", "neighbour"))
    return (victim == neighbour).astype(float)


def slowest_victims(frame, seed):
    """Yield one fold: train on all but the fourth of the jobs that have the longest steps, test on these as victims."""
    step_s = frame["victim_log_step_time_s"].groupby(level="victim").mean().sort_values()
    slowest = frame.index.get_level_values("victim").isin(step_s.index[-len(step_s) // 4 :])
    yield (~slowest).nonzero()[0], slowest.nonzero()[0]
