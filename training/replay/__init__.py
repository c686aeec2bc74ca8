"""`interfere replay`: a trace, a table of measured slowdowns and schedulers in, a report out."""
