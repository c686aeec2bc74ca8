"""Names the sharing mode that was chosen or assumed for a device, because slowdowns are predicted for that mode."""

from collections.abc import Iterable
from dataclasses import replace

from interfere.policy.context import PlanningContext
from interfere.records import Action, ActionKind
from interfere.sharing_modes import DEFAULT_MODE


def tell_assumed_modes(actions: Iterable[Action], context: PlanningContext) -> tuple[Action, ...]:
    """Return the actions with the chosen or assumed sharing mode of the device named in each shared start.

    An assumed mode of timeslice is not named.
    """
    return tuple(_told(action, context) for action in actions)


def _told(action: Action, context: PlanningContext) -> Action:
    if action.mode:
        rule = None if action.rule is None else replace(action.rule, sharing_mode=action.mode)
        return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {action.mode}, chosen for its device")
    mode = context.assumed_modes.get(action.device_id, DEFAULT_MODE)
    if mode is DEFAULT_MODE or action.kind is not ActionKind.START_SHARED:
        return action
    rule = None if action.rule is None else replace(action.rule, sharing_mode=mode)
    return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {mode}, for its device names none")
