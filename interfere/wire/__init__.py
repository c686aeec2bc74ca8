"""Records to protobuf and back, in pairs: `x_to_proto` and `x_from_proto`. One copy for client and server.

Law 1: from(to(record)) == record, for every record.
Law 2: whatever bytes arrive, `from` gives a valid record or InvalidInputError with the path of every broken rule.
"""
