"""Measures programs that are not ours: any command line, alone and beside others."""
