"""Records on the wire: converters to protobuf and back, bounds of requests, errors, documents of the command line.

Law 1: from(to(record)) == record, for every record.
Law 2: whatever bytes arrive, `from` gives a valid record or InvalidInputError with the path of every broken rule.
"""
