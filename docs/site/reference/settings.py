"""The page of the settings of a server, from their record."""

from dataclasses import fields

from docs.site.reference.markdown import code, plain, table
from interfere.config import PREFIX, Settings

INTRODUCTION = f"""# Settings

Settings of a server. Precedence, low to high: the default, a TOML file, the variable `{PREFIX}NAME`, the command line.
An unknown name is an error. [Running the server](../operations.md) says when to change which.
"""


def settings_page() -> str:
    """Return the page: every setting with its default, its bounds and its help line."""
    rows = []
    for setting in fields(Settings):
        default = getattr(Settings(), setting.name)
        bounds = " to ".join(f"{bound:g}" for bound in setting.metadata["bounds"])
        shown = "" if default in (None, "", ()) else code(str(default))
        rows.append((code(setting.name), shown, bounds, plain(setting.metadata["help"])))
    return INTRODUCTION + "\n" + table(("setting", "default", "bounds", "meaning"), rows)
