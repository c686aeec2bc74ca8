"""Sweeps: many independent replays, such as policies x loads x redraws of a trace, on any number of processes.

`tasks`: one replay as a picklable record, and the pure function that runs it. `running`: runs many of them with
progress and the time left; an interrupt keeps what is done. `saved_results`: a folder from which an interrupted sweep
goes on. `changes`: what a scheduler changes against its reference, with intervals over days or traces.
"""
