"""The commands of `interfere profile`: measure workloads and programs alone and in pairs, or trace models."""
