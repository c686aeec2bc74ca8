"""The ledger of a scope: promises of planned starts, memory grants, and use beyond a grant."""
