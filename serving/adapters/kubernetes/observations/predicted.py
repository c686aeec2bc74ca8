"""What the server predicts for measured windows, asked before they are reported: it must not have learnt from them."""

import logging
import math
from collections.abc import Sequence

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import Progress

_log = logging.getLogger("interfere.kubernetes")


def predicted_slowdowns(client: PolicyClient, windows: Sequence[Progress]) -> dict[str, float]:
    """The median slowdown beside the company of each window, by observation id; none where the server abstains."""
    found: dict[str, float] = {}
    situations = {(each.device_type, each.mode) for each in windows if each.company}
    for device_type, mode in sorted(situations):
        own = [each for each in windows if each.company and (each.device_type, each.mode) == (device_type, mode)]
        jobs, groups = list[str](), list[tuple[int, ...]]()
        for each in own:
            groups.append(tuple(range(len(jobs), len(jobs) + 1 + len(each.company))))
            jobs += [each.workload, *each.company]
        try:
            answer = client.predict(jobs, pairs=groups, device_type=device_type, mode=mode)
        except InterfereError as error:  # the windows are reported all the same
            _log.warning("no predictions for the journal: %s", " ".join(str(error).split()))
            continue
        medians = zip(own, answer.prediction.median, strict=True)
        found |= {each.observation_id: float(median) for each, median in medians if not math.isnan(median)}
    return found
