"""Converters between records and protobuf, in pairs (`x_to_proto`, `x_from_proto`), shared by client and server.

Law 1: from(to(record)) == record, for every record.
Law 2: whatever bytes arrive, `from` gives a valid record or InvalidInputError with the path of every broken rule.
"""
