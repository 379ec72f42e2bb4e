"""The tools beyond the specification: search, append, compose, history."""

from __future__ import annotations

from typing import Any

from tests.capsule_world import GOOD, World, capsule_text


class TestSearch:
    def found(self, world: World, query: str, **arguments: Any) -> list[str | None]:
        return world.names("search", query=query, **arguments)

    def test_shape(self, world: World) -> None:
        """A page of summaries with link and snippet, by relevance."""
        world.store("a", capsule_text(decisions="Use **PostgreSQL** for the ledger"))
        page = world.ok("search", query="postgresql ledger")

        assert page["sort"] == "relevance"
        assert page["pagination"] == {"limit": 20, "offset": 0, "has_more": False, "total": 1}
        (item,) = page["items"]
        assert item["fetch_key"] == item["task_link"] == {"moss_capsule": "a", "moss_workspace": "default"}
        assert "PostgreSQL" in item["snippet"]
        assert "capsule_text" not in item

    def test_words_as_people_type_them(self, world: World) -> None:
        """Punctuation is neither an error nor an operator."""
        world.store("miss", capsule_text("about nothing of the kind"))
        for query in (
            "pr-123",
            "main.go",
            "C++",
            "it's",
            "src/auth/token_store.py",
            "--dry-run",
            "user@host",
            "v1.2.3",
            "#42",
        ):
            world.store("hit", capsule_text(f"about {query}, of course"), mode="replace")

            assert self.found(world, query) == ["hit"], query

    def test_nothing_is_a_syntax_error(self, world: World) -> None:
        world.store("a")
        for query in ('"', '"open', "a AND", "OR", "NOT x", "NEAR(a b)", "name:x", "^a", "a*", "(", "{a}", "-", "\x00"):
            world.ok("search", query=query)
        world.ok("search", query="'; DROP TABLE x")
        assert world.names() == ["a"]

    def test_stop_words_do_not_decide(self, world: World) -> None:
        """Unless the query has nothing else."""
        world.store("a", capsule_text("the login of the shop"))
        world.store("b", capsule_text("how do I fix the cache"))

        assert self.found(world, "where is the login") == ["a"]
        assert "b" in self.found(world, "how do I")

    def test_c_plus_plus_is_not_c(self, world: World) -> None:
        """The signs in `C++` and `C#` must occur literally."""
        world.store("plain", capsule_text("the C code"))
        world.store("plus", capsule_text("the C++ code"))
        world.store("sharp", capsule_text("the C# code"))

        assert self.found(world, "c++") == ["plus"]
        assert self.found(world, "C#") == ["sharp"]
        assert sorted(map(str, self.found(world, "C"))) == ["plain", "plus", "sharp"]

    def test_names_titles_and_tags(self, world: World) -> None:
        """A match in the name, title or tags ranks before one in the text."""
        world.store("text", capsule_text("the billing part"))
        world.store("tag", tags=["billing"])
        world.store("title", title="Billing rework")
        world.store("Billing")

        assert self.found(world, "billing") == ["Billing", "title", "tag", "text"]

    def test_all_words_then_fewer(self, world: World) -> None:
        """Whole words first, then their beginnings, then any of them."""
        world.store("both", capsule_text("redis cache"))
        world.store("one", capsule_text("redis only"))

        assert self.found(world, "redis cache") == ["both"]
        assert self.found(world, "red cac") == ["both"]
        assert self.found(world, "cache zebra") == ["both"]
        assert self.found(world, "zebra") == []

    def test_a_phrase(self, world: World) -> None:
        world.store("a", capsule_text("connection reset by peer"))
        world.store("b", capsule_text("reset the connection"))

        assert self.found(world, '"connection reset"') == ["a"]

    def test_identifiers_by_their_parts(self, world: World) -> None:
        """As in the search of sessions."""
        world.store("a", capsule_text("rename getUserName in src/auth/token_store.py"))

        for query in ("getUserName", "user name", "token_store", "store.py", "auth/token"):
            assert self.found(world, query) == ["a"], query

    def test_any_script(self, world: World) -> None:
        """Scripts without spaces between words are found, and accents do not matter."""
        world.store("a", capsule_text("ユーザー認証システム 데이터베이스 привет résumé ฐานข้อมูล"))

        for query in ("認証", "証シ", "데이터", "Привет", "résumé", "RESUME", "ข้อมูล"):
            assert self.found(world, query) == ["a"], query

    def test_filters(self, world: World) -> None:
        world.store("a", workspace="one", tags=["x"], run_id="r")
        world.store("b", workspace="two")
        world.store("c", workspace="two")
        world.ok("delete", name="c", workspace="two")

        assert self.found(world, "work", workspace="TWO") == ["b"]
        assert self.found(world, "work", tag="x") == ["a"]
        assert self.found(world, "work", run_id="r") == ["a"]
        assert self.found(world, "work", include_deleted=True, workspace="two") == ["c", "b"]

    def test_follows_every_change(self, world: World) -> None:
        """Nothing is found that is no longer there."""
        world.store("a", capsule_text("aardvark"))
        world.ok("update", name="a", capsule_text=capsule_text("buffalo"))
        assert (self.found(world, "aardvark"), self.found(world, "buffalo")) == ([], ["a"])
        world.ok("append", name="a", section="Decisions", content="- capybara")
        world.ok("update", name="a", tags=["dingo"], title="Emu")
        assert [self.found(world, word) for word in ("capybara", "dingo", "emu")] == [["a"]] * 3
        world.ok("store", capsule_text=capsule_text("ferret"), name="a", mode="replace")
        assert [self.found(world, word) for word in ("buffalo", "dingo", "emu", "ferret")] == [[], [], [], ["a"]]
        world.ok("delete", name="a")
        assert self.found(world, "ferret") == []
        world.ok("restore", name="a")
        assert self.found(world, "ferret") == ["a"]
        world.ok("delete", name="a")
        world.ok("purge")
        assert self.found(world, "ferret", include_deleted=True) == []

    def test_the_query_must_be_there(self, world: World) -> None:
        for query in ("", "  ", "x" * 1001):
            assert world.refused("search", query=query)["details"]["field"] == "query"

    def test_pages(self, world: World) -> None:
        for number in range(5):
            world.store(f"n{number}")
        first, second = world.ok("search", query="work", limit=3), world.ok("search", query="work", limit=3, offset=3)

        assert first["pagination"] == {"limit": 3, "offset": 0, "has_more": True, "total": 5}
        assert second["pagination"]["has_more"] is False
        assert len({item["id"] for page in (first, second) for item in page["items"]}) == 5


class TestAppendOfCode:
    def test_an_open_fence_is_refused(self, world: World) -> None:
        """An open fence would hide the headings after it."""
        world.store("a")
        error = world.refused("append", name="a", section="Decisions", content="```python\nprint(1)")

        assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", "content")
        world.ok("append", name="a", section="Decisions", content="```python\nprint(1)\n```")
        assert "print(1)" in world.ok("fetch", name="a")["capsule_text"]

    def test_in_place_of_a_placeholder_beside_its_name(self, world: World) -> None:
        """Code begins on a line of its own: behind `Decisions:` its end would be taken for a beginning."""
        world.store("a", "Decisions: tbd\n\n" + GOOD.replace("## Decisions", "## Other"))
        world.ok("append", name="a", section="Decisions", content="```python\nprint(1)\n```")

        assert "Decisions:\n```python\nprint(1)\n```\n" in world.ok("fetch", name="a")["capsule_text"]

    def test_a_bundle_closes_what_a_capsule_leaves_open(self, world: World) -> None:
        world.store("a", f"{GOOD}\n~~~~text\nlog")
        world.store("b")
        bundle = world.ok("compose", items=[{"name": "a"}, {"name": "b"}])["bundle_text"]

        assert "log\n~~~~\n\n---\n\n## b\n" in bundle


class TestAppend:
    def test_to_a_list(self, world: World) -> None:
        """The content goes to the end of the section; the rest stays as it was."""
        capsule_id = world.store("a", capsule_text(decisions="- JWT\n- RS256"))
        answer = world.ok("append", name="a", section="decisions", content="- rotate keys\n")

        link = {"moss_capsule": "a", "moss_workspace": "default"}
        expected = {"id": capsule_id, "task_link": link, "fetch_key": link, "section": "Decisions", "replaced": False}
        assert answer == expected
        assert world.ok("fetch", name="a")["capsule_text"] == capsule_text(decisions="- JWT\n- RS256\n- rotate keys")

    def test_by_another_name_of_the_section(self, world: World) -> None:
        world.store("a", capsule_text(next_actions="- one"))
        world.ok("append", name="a", section="TODO", content="- two")

        assert "## Next actions\n- one\n- two\n" in world.ok("fetch", name="a")["capsule_text"]

    def test_a_section_of_ones_own(self, world: World) -> None:
        """A section beyond the six can be extended; an exact heading is preferred."""
        world.store("a", capsule_text() + "\n## Reviews\nFirst: fine.\n")
        world.ok("append", name="a", section="reviews", content="Second: better.")

        assert world.ok("fetch", name="a")["capsule_text"].endswith("## Reviews\nFirst: fine.\n\nSecond: better.\n")

    def test_replaces_a_placeholder(self, world: World) -> None:
        for placeholder in ("TBD", "- none", "(pending)", "N/A", "...", "-", "", "_None yet._"):
            world.store("a", capsule_text(open_questions=placeholder), mode="replace")

            assert world.ok("append", name="a", section="Risks", content="- a risk")["replaced"] is True, placeholder
            assert world.ok("fetch", name="a")["capsule_text"] == capsule_text(open_questions="- a risk")

    def test_an_unknown_section_lists_those_that_are_there(self, world: World) -> None:
        world.store("a")
        error = world.refused("append", name="a", section="Diary", content="x")

        assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "section"})
        assert "Objective, Current status, Decisions" in error["message"]

    def test_a_json_capsule_has_no_sections_to_append_to(self, world: World) -> None:
        keys = '{"goal": 1, "status": 1, "decisions": 1, "todo": 1, "files": 1, "risks": 1}'
        world.store("a", keys)

        assert world.refused("append", name="a", section="goal", content="x")["details"]["field"] == "section"

    def test_the_limit_holds(self, world: World) -> None:
        world.store("a")

        assert world.refused("append", name="a", section="goal", content="x" * 12_000)["code"] == "CAPSULE_TOO_LARGE"
        assert world.ok("fetch", name="a")["capsule_text"] == GOOD

    def test_a_thin_capsule_stays_allowed(self, world: World) -> None:
        world.ok("store", capsule_text="# Log\nx", name="a", allow_thin=True)
        world.ok("append", name="a", section="log", content="y")

        assert world.ok("fetch", name="a")["capsule_text"] == "# Log\nx\n\ny"


class TestCompose:
    def test_in_the_order_given(self, world: World) -> None:
        """Each under its title, name or id."""
        world.store("a", capsule_text("first"), title="Research")
        world.store("b", capsule_text("second"))
        nameless = world.store(None, capsule_text("third"))
        answer = world.ok("compose", items=[{"name": "b"}, {"id": nameless}, {"name": "a"}])

        text = answer["bundle_text"]
        parts = text.split("\n\n---\n\n")
        assert [part.split("\n")[0] for part in parts] == ["## b", f"## {nameless}", "## Research"]
        assert "first" in parts[2]
        assert answer == {"bundle_text": text, "bundle_chars": len(text), "parts_count": 3}

    def test_all_or_nothing(self, world: World) -> None:
        world.store("a")

        assert world.refused("compose", items=[{"name": "a"}, {"name": "b"}])["code"] == "NOT_FOUND"
        assert world.refused("compose", items=[{"name": "a"}, "a"])["code"] == "INVALID_REQUEST"
        assert world.refused("compose", items=[])["details"]["field"] == "items"

    def test_as_json(self, world: World) -> None:
        import json

        capsule_id = world.store("a")
        (part,) = json.loads(world.ok("compose", items=[{"name": "a"}], format="json")["bundle_text"])["parts"]

        assert part == {
            "id": capsule_id,
            "workspace": "default",
            "name": "a",
            "display_name": "a",
            "text": GOOD,
            "chars": len(GOOD),
        }

    def test_stored(self, world: World) -> None:
        """The result is stored as a capsule, by the rules of `store`."""
        world.store("a", capsule_text("first"))
        world.store("b", capsule_text("second"))
        items = [{"name": "a"}, {"name": "b"}]
        answer = world.ok("compose", items=items, store_as={"name": "both", "workspace": "Bundles"})

        assert answer["stored"]["fetch_key"] == {"moss_capsule": "both", "moss_workspace": "Bundles"}
        assert world.ok("fetch", name="both", workspace="bundles")["capsule_text"] == answer["bundle_text"]
        again = {"name": "both", "workspace": "Bundles"}
        assert world.refused("compose", items=items, store_as=again)["code"] == "NAME_ALREADY_EXISTS"
        assert world.ok("compose", items=items, store_as=again | {"mode": "replace"})["stored"]["replaced"] is True
        assert world.refused("compose", items=items, store_as={"workspace": "x"})["details"]["field"] == "store_as.name"
        assert world.refused("compose", items=items, format="json", store_as=again)["details"]["field"] == "store_as"


class TestHistory:
    def test_newest_first(self, world: World) -> None:
        """The list has the current version and the earlier ones, without text."""
        capsule_id = world.store("a", source="codex")
        world.ok("update", name="a", title="Second")
        world.ok("store", capsule_text=capsule_text("third"), name="a", mode="replace")
        answer = world.ok("history", name="a")

        assert answer["id"] == capsule_id
        assert answer["version"] == 3
        assert [item["version"] for item in answer["items"]] == [3, 2, 1]
        assert [item["title"] for item in answer["items"]] == ["a", "Second", "a"]
        assert [item.get("source") for item in answer["items"]] == [None, "codex", "codex"]
        assert not any("capsule_text" in item for item in answer["items"])

    def test_an_older_version(self, world: World) -> None:
        """`version` belongs to the returned text, so that a guarded update of an older text is refused."""
        world.store("a", capsule_text("first"))
        world.ok("update", name="a", capsule_text=capsule_text("second"))

        for version, about in ((1, "first"), (2, "second")):
            answer = world.ok("history", name="a", version=version)
            assert [item["capsule_text"] for item in answer["items"]] == [capsule_text(about)]
            assert (answer["version"], answer["items"][0]["version"]) == (version, version)
            assert answer["current_version"] == 2
        older = world.ok("history", name="a", version=1)["version"]
        assert world.refused("update", name="a", title="x", if_version=older)["code"] == "CONFLICT"
        assert world.refused("history", name="a", version=3)["code"] == "NOT_FOUND"

    def test_keeps_the_last_twenty(self, world: World) -> None:
        world.store("a")
        for number in range(30):
            world.ok("update", name="a", title=str(number))
        versions = [item["version"] for item in world.ok("history", name="a")["items"]]

        assert versions == list(range(31, 10, -1))

    def test_outlives_deletion(self, world: World) -> None:
        world.store("a")
        world.ok("update", name="a", title="x")
        world.ok("delete", name="a")

        assert world.refused("history", name="a")["code"] == "NOT_FOUND"
        assert world.ok("history", name="a", include_deleted=True)["version"] == 2
        world.ok("restore", name="a")
        assert len(world.ok("history", name="a")["items"]) == 2
