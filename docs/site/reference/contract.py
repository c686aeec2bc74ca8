"""The page of the wire contract, from the comments of policy.proto."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc  # type: ignore[import-untyped]

from docs.site.links import ROOT
from docs.site.reference.markdown import code, plain, table

PROTO = "interfere/v1/policy.proto"
INTRODUCTION = """# Wire contract

The service, its messages and their fields, with the comments of
[`policy.proto`](../../serving/proto/interfere/v1/policy.proto). The contract only grows: an old client works with a new
server. [Clients](../clients.md) shows how to call it.
"""
SYNTAX, MESSAGE, ENUM, SERVICE = 12, 4, 5, 6  # field numbers in FileDescriptorProto
FIELD, NESTED, NESTED_ENUM, VALUE, METHOD = 2, 3, 4, 2, 2  # in the descriptors of messages, enums and services


def contract_page() -> str:
    """Return the page: general bounds, every rpc, every message with its fields, every enum with its values."""
    file = _described()
    comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    parts = [INTRODUCTION, *(plain(paragraph) + "\n" for paragraph in comments[SYNTAX,].split("\n\n"))]
    for number, service in enumerate(file.service):
        rows = (
            (code(rpc.name), plain(comments[SERVICE, number, METHOD, k]), _link(rpc.input_type), _link(rpc.output_type))
            for k, rpc in enumerate(service.method)
        )
        parts += [f"## {service.name}\n", table(("rpc", "meaning", "request", "answer"), rows)]
    parts.append("## Messages\n")
    for number, message in enumerate(file.message_type):
        parts += _message(message, (MESSAGE, number), comments)
    parts.append("## Enums\n")
    for number, enum in enumerate(file.enum_type):
        parts += _enum(enum, (ENUM, number), comments)
    return "\n".join(parts)


def _described() -> FileDescriptorProto:
    """Return the contract as protoc reads it, with its comments."""
    source = ROOT / "serving" / "proto"
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "set"
        options = ["--include_source_info", f"--proto_path={source}", f"--descriptor_set_out={described}"]
        if protoc.main(["protoc", *options, PROTO]):
            raise RuntimeError(f"protoc cannot read {source / PROTO}")
        (file,) = FileDescriptorSet.FromString(described.read_bytes()).file
    return file


def _message(
    message: DescriptorProto, path: tuple[int, ...], comments: dict[tuple[int, ...], str], prefix: str = ""
) -> Iterator[str]:
    name = prefix + message.name
    yield f"### {name}\n"
    yield plain(comments.get(path, "")) + "\n"
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        (code(field.name), str(field.number), _type(field, maps), plain(comments.get((*path, FIELD, k), "")))
        for k, field in enumerate(message.field)
    ]
    if rows:
        yield table(("field", "number", "type", "meaning"), rows)
    for k, nested in enumerate(message.nested_type):
        if nested.name not in maps:
            yield from _message(nested, (*path, NESTED, k), comments, f"{name}.")
    for k, enum in enumerate(message.enum_type):
        yield from _enum(enum, (*path, NESTED_ENUM, k), comments, f"{name}.")


def _enum(
    enum: EnumDescriptorProto, path: tuple[int, ...], comments: dict[tuple[int, ...], str], prefix: str = ""
) -> Iterable[str]:
    rows = (
        (code(value.name), str(value.number), plain(comments.get((*path, VALUE, k), "")))
        for k, value in enumerate(enum.value)
    )
    return (
        f"### {prefix}{enum.name}\n",
        plain(comments.get(path, "")) + "\n",
        table(("value", "number", "meaning"), rows),
    )


def _type(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
    if (entry := maps.get(field.type_name.rpartition(".")[2])) is not None:
        return f"map of {_type(entry.field[0], {})} to {_type(entry.field[1], {})}"
    name = _link(field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    return f"{name}, may be absent" if field.proto3_optional else name


def _link(type_name: str) -> str:
    """Return a link to a type of the contract by its full name."""
    name = type_name.removeprefix(".interfere.v1.")
    anchor = name.lower().replace(".", "")
    return f"[{name}](#{anchor})" if type_name.startswith(".interfere.v1.") else code(name)
