"""Measure jobs alone and together on this machine, into a table."""

import typer

from interfere.commands.profile.campaign import campaign, pairs, solo, workloads
from interfere.commands.profile.programs import command
from interfere.commands.profile.static import static

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
for function in (command, solo, pairs, campaign, static, workloads):
    app.command()(function)
