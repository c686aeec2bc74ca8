"""The ledger of a scope: promised actions, memory grants, and memory use beyond a grant."""
