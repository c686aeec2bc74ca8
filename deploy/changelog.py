"""`python -m deploy.changelog VERSION`: join the fragments of .changes/ into a section of CHANGELOG.md.

A fragment is a Markdown file whose text begins with one of the topics of `TOPICS` in bold, as in `**Decide.** ...`.
Each change brings a file of its own, so two changes never edit the same line. Law: the text of every fragment is in the
new section once, and its file is gone.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOPICS = (
    *("Breaking", "Install", "Measure", "Import", "Predict", "Train", "Decide", "Serve", "Enforce", "Adapters"),
    *("Ask traces", "Command line", "Documentation", "Project"),
)
TITLE = "# Changelog\n"


def section(version: str, fragments: Mapping[str, str]) -> str:
    """Return the section of a version from the texts of fragments by file name. Raises ValueError for a bad one."""
    by_topic: dict[str, list[str]] = {}
    for name, text in sorted(fragments.items()):
        found = re.fullmatch(r"\*\*([^*]+)\.\*\* (.+)", text.strip(), re.DOTALL)
        if not found or found[1] not in TOPICS:
            raise ValueError(f".changes/{name} begins with no topic: write **TOPIC.** and one of {', '.join(TOPICS)}")
        by_topic.setdefault(found[1], []).append(found[2])
    paragraphs = [f"**{topic}.** {' '.join(by_topic[topic])}\n" for topic in TOPICS if topic in by_topic]
    return "\n".join((f"## {version}\n", *paragraphs))


def join(version: str, root: Path = ROOT) -> None:
    """Put the section of a version on top of CHANGELOG.md, and delete its fragments. Raises ValueError."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        raise ValueError(f"{version!r} is no version: make changelog VERSION=0.2.0")
    files = {path.name: path for path in (root / ".changes").glob("*.md")}
    changelog = root / "CHANGELOG.md"
    before = changelog.read_text(encoding="utf-8")
    if not files or f"\n## {version}\n" in before:
        raise ValueError("no fragment in .changes/" if not files else f"CHANGELOG.md has a section {version} already")
    before = before.replace(f"## {version} (unreleased)\n\n", "", 1)  # what stands there is of this version
    new = section(version, {name: path.read_text(encoding="utf-8") for name, path in files.items()})
    changelog.write_text(f"{TITLE}\n{new}\n{before.removeprefix(TITLE).lstrip()}", encoding="utf-8")
    for path in files.values():
        path.unlink()


if __name__ == "__main__":
    try:
        join(sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        sys.exit(f"error: {error}")
