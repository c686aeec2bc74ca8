"""Converters of memory grants."""

from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import DeviceGrants, GrantLine, GrantTables
from interfere.wire.scalars import numbers, set_numbers

_DEVICE = ("device_id", "device_type", "granules", "granted", "free", "oversubscription_ratio", "granule_bytes")
_GRANT = ("job_id", "device_id", "granules", "bytes", "planned", "times_exceeded")
_OPTIONAL = ("since_s", "last_use_bytes")


def tables_to_proto(tables: GrantTables) -> pb.ListGrantsResponse:
    """The tables of devices and grants."""
    lines = []
    for grant in tables.grants:
        line = pb.Grant(**{name: getattr(grant, name) for name in _GRANT})
        set_numbers(line, grant, *_OPTIONAL)
        lines.append(line)
    devices = [pb.DeviceGrants(**{name: getattr(device, name) for name in _DEVICE}) for device in tables.devices]
    return pb.ListGrantsResponse(scope=tables.scope, now_s=tables.now_s, devices=devices, grants=lines)


def tables_from_proto(message: pb.ListGrantsResponse) -> GrantTables:
    """The tables of devices and grants."""
    return GrantTables(
        scope=message.scope,
        now_s=message.now_s,
        devices=tuple(DeviceGrants(**{name: getattr(device, name) for name in _DEVICE}) for device in message.devices),
        grants=tuple(
            GrantLine(**({name: getattr(grant, name) for name in _GRANT} | numbers(grant, *_OPTIONAL)))
            for grant in message.grants
        ),
    )
