"""The six sections: strict names, tolerant forms, code left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.toolsets.capsules.lint import SECTIONS, missing_sections, sections

ACCEPTED = {
    "Objective": ("objective", "goal", "purpose"),
    "Current status": ("current status", "status", "state", "where we are"),
    "Decisions": (
        "decisions",
        "decisions / constraints",
        "decisions/constraints",
        "constraints",
        "choices",
        "key decisions",
        "decisions & constraints",
    ),
    "Next actions": ("next actions", "next steps", "action items", "todo", "tasks"),
    "Key locations": ("key locations", "locations", "files", "paths", "references", "key files"),
    "Open questions": (
        "open questions",
        "open questions / risks",
        "open questions/risks",
        "open questions & risks",
        "open questions and risks",
        "questions",
        "risks",
        "unknowns",
    ),
}
NAMES = [(section, name) for section, names in ACCEPTED.items() for name in names]
FORMS = (
    "- **{}**: x",
    "* **{}:** x",
    "# {}",
    "## {}",
    "###### {}",
    "##{}",
    "   ## {}",
    "## {}:",
    "## {} ##",
    "## 1. {}",
    "## 2) {}:",
    "### 1.2 {}",
    "## **{}**",
    "## \U0001f3af {}",
    "**{}**",
    "**{}:**",
    "**{}:** and text",
    "**{}**: and text",
    "__{}__",
    "{}:",
    "{}: and text",
    "{} :",
    "{}\n=====",
    "{}\n-----",
)
NOT_FORMS = (
    "{}",
    "####### {}",
    "    ## {}",
    "- {}: text",
    "* **{}** text",
    "The {}: text",
    "## The {}",
    "## {}s and more",
    "## {} of the project",
    "**{}** is clear",
    "text {}:",
    "```\n## {}\n```",
    "~~~md\n## {}\n~~~~",
    "````\n```\n## {}\n```\n````",
    "```\n{}: x",
    "> ## {}",
)


def present(text: str) -> set[str]:
    return set(SECTIONS) - set(missing_sections(text))


def in_case(draw: st.DrawFn, name: str) -> str:
    return "".join(letter.upper() if draw(st.booleans()) else letter for letter in name)


class TestForms:
    @pytest.mark.parametrize("form", FORMS)
    def test_accepted(self, form: str) -> None:
        """Every accepted name in every form that people use."""
        for section, name in NAMES:
            assert present(f"before\n\n{form.format(name)}\nafter") == {section}

    @pytest.mark.parametrize("form", NOT_FORMS)
    def test_not_accepted(self, form: str) -> None:
        """A word in a sentence, another name around it, or code."""
        for _, name in NAMES:
            assert present(form.format(name)) == set()

    @pytest.mark.parametrize(
        "name", ["Objectives", "Goals", "Decision", "Next", "Location", "Question", "Statuses", ""]
    )
    def test_names_are_strict(self, name: str) -> None:
        assert present(f"## {name}\n") == set()

    @given(st.data())
    def test_any_case_and_spacing(self, data: st.DataObject) -> None:
        """Case does not matter, nor how many spaces are between the words, nor the line ends."""
        section, name = data.draw(st.sampled_from(NAMES))
        form = data.draw(st.sampled_from(FORMS))
        words = [in_case(data.draw, word) for word in name.split(" ")]
        spaced = "".join(word + data.draw(st.sampled_from((" ", "  "))) for word in words).rstrip()
        newline = data.draw(st.sampled_from(("\n", "\r\n", "\r")))
        text = newline.join(["text", "", *form.format(spaced).split("\n"), "text"])

        assert present(text) == {section}

    @given(st.data())
    def test_any_order_and_mixture(self, data: st.DataObject) -> None:
        """What is missing is told in canonical order, whatever is there."""
        chosen = data.draw(st.lists(st.sampled_from(SECTIONS), unique=True))
        parts = [data.draw(st.sampled_from(FORMS)).format(ACCEPTED[section][0]) + "\ntext\n" for section in chosen]

        assert missing_sections("\n".join(parts)) == [section for section in SECTIONS if section not in chosen]

    @given(st.text(), st.sampled_from(NAMES), st.sampled_from(("```", "~~~", "`````")))
    def test_code_never_counts(self, code: str, named: tuple[str, str], fence: str) -> None:
        """Whatever is inside a fence, up to the end of the text if it is not closed."""
        inside = code.replace("`", "").replace("~", "")

        assert present(f"{fence}\n{inside}\n## {named[1]}\n") == set()

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """Is linted without an error, and its sections lie one after the other within it."""
        missing_sections(text)
        found = sections(text)
        assert all(0 <= one.start < one.body <= one.end <= len(text) for one in found)
        assert [one.start for one in found] == sorted({one.start for one in found})

    def test_long_hostile_text(self) -> None:
        """Takes no more than a moment."""
        for piece in ("# \n", "`" * 50, "*" * 50, "a:", "**", "#" * 50, " " * 50, "1." * 25):
            missing_sections(piece * (60_000 // len(piece)))


class TestJson:
    @pytest.mark.parametrize(("section", "name"), NAMES)
    def test_top_level_keys(self, section: str, name: str) -> None:
        """As words, with underscores or hyphens, or in camel case."""
        import json

        words = name.replace("/", " ").split()
        camel = words[0] + "".join(word.title() for word in words[1:])
        for key in (
            name,
            name.upper(),
            "_".join(words),
            "-".join(words),
            camel,
            camel.title() if len(words) == 1 else camel,
        ):
            assert present(json.dumps({key: None})) == {section}

    @pytest.mark.parametrize(
        "text",
        [
            '{"nested": {"objective": 1}}',
            '["objective"]',
            '{"objective": ',
            '"objective"',
            '{"objectives": 1}',
            '{"a":' * 5000,
        ],
    )
    def test_nothing_else(self, text: str) -> None:
        assert present(text) == set()
