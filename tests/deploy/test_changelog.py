"""The changelog from fragments: nothing is lost, nothing stands twice, and those in the tree can be joined."""

from pathlib import Path

import pytest

from deploy.changelog import ROOT, TITLE, TOPICS, join, section

FRAGMENTS = {
    "b.md": "**Serve.** Second.\n",
    "a.md": "**Serve.** First.\n",
    "c.md": "**Breaking.** Third,\non two lines.\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with three fragments and a changelog of one version."""
    (tmp_path / ".changes").mkdir()
    for name, text in FRAGMENTS.items():
        (tmp_path / ".changes" / name).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(f"{TITLE}\n## 0.1.0\n\n**Serve.** Old.\n")
    return tmp_path


def test_fragments_become_the_newest_section_by_topic(tree: Path) -> None:
    join("0.2.0", tree)
    assert (tree / "CHANGELOG.md").read_text() == (
        f"{TITLE}\n## 0.2.0\n\n**Breaking.** Third,\non two lines.\n\n**Serve.** First. Second.\n\n"
        "## 0.1.0\n\n**Serve.** Old.\n"
    )
    assert list((tree / ".changes").iterdir()) == []


def test_what_stood_there_as_unreleased_becomes_a_part_of_the_version(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(f"{TITLE}\n## 0.1.0 (unreleased)\n\n**Serve.** Old.\n")
    join("0.1.0", tree)
    assert (tree / "CHANGELOG.md").read_text() == (
        f"{TITLE}\n## 0.1.0\n\n**Breaking.** Third,\non two lines.\n\n**Serve.** First. Second.\n\n**Serve.** Old.\n"
    )


@pytest.mark.parametrize("version", ["", "next", "0.2", "0.1.0"])
def test_a_bad_or_known_version_changes_nothing(version: str, tree: Path) -> None:
    before = (tree / "CHANGELOG.md").read_text()
    with pytest.raises(ValueError, match=r"is no version|already"):
        join(version, tree)
    assert (tree / "CHANGELOG.md").read_text() == before
    assert len(list((tree / ".changes").iterdir())) == len(FRAGMENTS)


def test_a_fragment_without_a_topic_changes_nothing(tree: Path) -> None:
    (tree / ".changes" / "d.md").write_text("New.\n")
    with pytest.raises(ValueError, match=r"d\.md begins with no topic"):
        join("0.2.0", tree)
    assert len(list((tree / ".changes").iterdir())) == len(FRAGMENTS) + 1


def test_the_fragments_of_this_tree_can_be_joined() -> None:
    fragments = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".changes").glob("*.md")}
    assert all(text.split()[-1] in section("1.0.0", fragments) for text in fragments.values())
    assert len(TOPICS) == len(set(TOPICS))
