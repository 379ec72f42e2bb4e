"""The six sections: strict names, tolerant forms, code left out."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from backstory.toolsets.capsules.sections import SECTIONS, extend_section, missing_sections, sections

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
    def test_accepted(self) -> None:
        """Every accepted name in every form that people use."""
        for form in FORMS:
            for section, name in NAMES:
                assert present(f"before\n\n{form.format(name)}\nafter") == {section}, (form, name)

    def test_not_accepted(self) -> None:
        """A word in a sentence, another name around it, or code."""
        for form in NOT_FORMS:
            for _, name in NAMES:
                assert present(form.format(name)) == set(), (form, name)

    def test_a_byte_order_mark_hides_nothing(self) -> None:
        for text in ("## Objective\nx", "**Objective**", "Objective: x", "Goal\n====", '{"objective": 1}'):
            assert present(f"\ufeff{text}") == {"Objective"}, text
        assert present("\ufeff```\n## Objective\n```") == set()
        assert extend_section("\ufeffObjective: old", "objective", "new").text == "\ufeffObjective: old\n\nnew"

    def test_names_are_strict(self) -> None:
        for name in ("Objectives", "Goals", "Decision", "Next", "Location", "Question", "Statuses", ""):
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
        """Missing sections are listed in canonical order."""
        chosen = data.draw(st.lists(st.sampled_from(SECTIONS), unique=True))
        parts = [data.draw(st.sampled_from(FORMS)).format(ACCEPTED[section][0]) + "\ntext\n" for section in chosen]

        assert missing_sections("\n".join(parts)) == [section for section in SECTIONS if section not in chosen]

    @given(st.text(), st.sampled_from(NAMES), st.sampled_from(("```", "~~~", "`````")))
    def test_code_never_counts(self, code: str, named: tuple[str, str], fence: str) -> None:
        """Inside a fence, up to the end of the text if it is not closed."""
        inside = code.replace("`", "").replace("~", "")

        assert present(f"{fence}\n{inside}\n## {named[1]}\n") == set()

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """Any text is linted without an error, and its sections follow one another within it."""
        missing_sections(text)
        found = sections(text)
        assert all(0 <= one.start < one.body <= one.end <= len(text) for one in found)
        assert [one.start for one in found] == sorted({one.start for one in found})

    def test_long_hostile_text(self) -> None:
        """Does not make the patterns backtrack for ever."""
        for piece in ("# \n", "`" * 50, "*" * 50, "a:", "**", "#" * 50, " " * 50, "1." * 25):
            missing_sections(piece * (60_000 // len(piece)))


class TestJson:
    def test_top_level_keys(self) -> None:
        """As words, with underscores or hyphens, or in camel case."""
        for section, name in NAMES:
            words = name.replace("/", " ").split()
            camel = words[0] + "".join(word.title() for word in words[1:])
            capital = camel.title() if len(words) == 1 else camel
            for key in (name, name.upper(), "_".join(words), "-".join(words), camel, capital):
                assert present(json.dumps({key: None})) == {section}, key

    def test_nothing_else(self) -> None:
        for text in (
            '{"nested": {"objective": 1}}',
            '["objective"]',
            '{"objective": ',
            '"objective"',
            '{"objectives": 1}',
            '{"a":' * 5000,
        ):
            assert present(text) == set(), text[:40]
