"""placeholder"""

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)
