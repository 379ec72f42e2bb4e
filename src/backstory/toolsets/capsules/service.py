"""The rules of the capsule tools: the checks in the order of the contract, and the changes they allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...config import CapsuleSettings
from ...egress import Mode
from ..base import excerpt
from . import answers, requests
from .answers import CapsuleError
from .capsule import (
    SECOND,
    Capsule,
    check_fields,
    check_marks,
    item,
    link,
    loss_warnings,
    normalise,
    search_hit,
    secret_warnings,
    summary,
    version_of,
    with_text,
    workspace_or_default,
)
from .exchange import export_capsules, import_capsules
from .requests import (
    Target,
    choice,
    filters_of,
    limit_of,
    offset_of,
    refs_of,
    target_of,
    target_of_ref,
    text_of,
    unless_blank,
)
from .rows import Filters
from .sections import bundle_json, bundle_markdown, check_text, extend_section, missing_sections, open_fence
from .store import Store, search

_MAX_QUERY_CHARS = 1000
_DAY_US = 86_400 * SECOND
_MAX_DAYS = 1_000_000
_LABELS = ("title", "tags", "source", "run_id", "phase", "role", "source_session")


class Capsules:
    """One store of capsules. Every tool is a method: it takes the tool's arguments and gives its result, or raises
    CapsuleError. Results hold texts exactly as stored; the frame of the tools redacts them."""

    def __init__(
        self,
        home: Path,
        settings: CapsuleSettings | None = None,
        redact: Mode = "egress",
        *,
        store: Store | None = None,
    ) -> None:
        self.settings = settings or CapsuleSettings()
        self.redact: Mode = redact
        self._store = store or Store(home)

    def close(self) -> None:
        self._store.close()

    # For the rest of Backstory

    def of_session(self, source_session: str) -> list[answers.Summary]:
        """The capsules that were distilled from this session, newest first."""
        with self._store.reading() as reader:
            return [summary(capsule, self.redact) for capsule in reader.of_session(source_session)]

    def matches(
        self, query: str, limit: int, *, since: int | None = None, until: int | None = None
    ) -> list[answers.Match]:
        """The capsules that have at least half of the terms of a query, best first. Times are in milliseconds."""
        with self._store.reading() as reader:
            found = search(reader, query, Filters(since=since, until=until), limit, mode=self.redact)
        hits = [
            answers.Match(
                id=hit.capsule.id,
                workspace=hit.capsule.workspace,
                name=hit.capsule.name,
                title=hit.capsule.title,
                snippet=hit.snippet,
                score=hit.score,
                updated_at=hit.capsule.updated_at,
            )
            for hit in found.hits
            if hit.coverage >= 0.5
        ]
        return sorted(hits, key=lambda hit: -hit.score)

    # The tools

    def store(self, given: requests.StoreInput) -> answers.Stored:
        return self._store_text(given, check=True)

    def _store_text(self, given: requests.StoreInput, *, check: bool) -> answers.Stored:
        """`check` refuses redaction marks. A text made of stored texts is exact and needs no check."""
        text = text_of(given.capsule_text)
        mode = choice("mode", given.mode, ("error", "replace"))
        capsule = Capsule(
            workspace=workspace_or_default(given.workspace),
            name=given.name,
            title=unless_blank(given.title) or given.name,
            tags=tuple(given.tags or ()),
            source=unless_blank(given.source),
            run_id=unless_blank(given.run_id),
            phase=unless_blank(given.phase),
            role=unless_blank(given.role),
            source_session=unless_blank(given.source_session),
            allow_thin=bool(given.allow_thin),
        )
        check_fields(capsule)
        check_text(text, max_chars=self.settings.most_chars, allow_thin=capsule.allow_thin)
        capsule = with_text(capsule, text)
        with self._store.writing() as writer:
            taken = writer.by_name(capsule.workspace_norm, normalise(given.name)) if given.name else None
            if taken is None:
                created = writer.create(capsule)
                key = link(created)
                return answers.Stored(created.id, key, key, created=True, warnings=secret_warnings(text))
            if mode == "error":
                raise CapsuleError.name_taken(capsule.workspace, given.name or "")
            if check:
                _check_marks(taken, capsule)
            replaced = writer.change(taken, replace(capsule, created_at=taken.created_at))
        key = link(replaced)
        return answers.Stored(replaced.id, key, key, replaced=True, warnings=_warnings(taken, replaced))

    def fetch(self, given: requests.FetchInput) -> answers.Item:
        target = target_of(given)
        with self._store.reading() as reader:
            capsule = target.find(reader, include_deleted=bool(given.include_deleted))
        return item(capsule, self._mode(given.raw), include_text=given.include_text is not False)

    def fetch_many(self, given: requests.FetchManyInput) -> answers.Fetched:
        fetched = answers.Fetched([], [])
        include_text = given.include_text is not False
        with self._store.reading() as reader:
            for ref in refs_of(given.items):
                try:
                    capsule = target_of_ref(ref).find(reader, include_deleted=bool(given.include_deleted))
                    fetched.items.append(item(capsule, self._mode(given.raw), include_text=include_text))
                except CapsuleError as error:
                    fetched.errors.append(answers.RefError(excerpt(ref), error.code, excerpt(error.message)))
        return fetched

    def update(self, given: requests.UpdateInput) -> answers.Updated:
        target = target_of(given)
        labels = {field: value for field in _LABELS if (value := getattr(given, field)) is not None}
        if not labels and given.capsule_text is None:
            choices = ", ".join(("capsule_text", *_LABELS))
            raise CapsuleError.invalid("capsule_text", f"Nothing to update; give at least one of {choices}")
        self._await_next_second(target, given.if_updated_at)
        text = given.capsule_text
        with self._store.writing() as writer:
            old = target.find(writer)
            _check_unchanged(old, given.if_updated_at, given.if_version)
            new = _labelled(old, labels)
            check_fields(new)
            if text is not None:
                check_text(text, max_chars=self.settings.most_chars, allow_thin=bool(given.allow_thin))
                new = with_text(replace(new, allow_thin=bool(given.allow_thin)), text)
            _check_marks(old, new)
            writer.change(old, new)
        return answers.Updated(new.id, link(new), link(new), warnings=_warnings(old, new))

    def delete(self, given: requests.DeleteInput) -> answers.Deleted:
        target = target_of(given)
        with self._store.writing() as writer:
            capsule = target.find(writer)
            _check_unchanged(capsule, given.if_updated_at, given.if_version)
            writer.delete(capsule)
        return answers.Deleted(True, capsule.id)

    def latest(self, given: requests.LatestInput) -> answers.Latest:
        filters = filters_of(given, workspace=workspace_or_default(given.workspace))
        include_text = bool(given.include_text)
        with self._store.reading() as reader:
            capsule = reader.latest(filters, with_text=include_text)
        if capsule is None:
            return answers.Latest(None)
        return answers.Latest(item(capsule, self._mode(given.raw), include_text=include_text))

    def list_workspace(self, given: requests.ListInput) -> answers.Page:
        filters = filters_of(given, workspace=workspace_or_default(given.workspace))
        return self._page(filters, limit_of(given.limit, 20, 100), given.offset)

    def inventory(self, given: requests.InventoryInput) -> answers.Page:
        filters = filters_of(given, workspace=given.workspace, tag=given.tag, name_prefix=given.name_prefix)
        return self._page(filters, limit_of(given.limit, 100, 500), given.offset)

    def search(self, given: requests.SearchInput) -> answers.SearchPage:
        if given.query is None or not given.query.strip():
            raise CapsuleError.invalid("query", "query is required")
        if len(given.query) > _MAX_QUERY_CHARS:
            raise CapsuleError.invalid("query", f"query must have at most {_MAX_QUERY_CHARS} characters")
        filters = filters_of(given, workspace=given.workspace, tag=given.tag)
        limit, offset = limit_of(given.limit, 20, 100), offset_of(given.offset)
        with self._store.reading() as reader:
            found = search(reader, given.query, filters, limit, offset, mode=self.redact)
        pagination = answers.Pagination(limit, offset, offset + len(found.hits) < found.total, found.total)
        return answers.SearchPage([search_hit(hit.capsule, hit.snippet, self.redact) for hit in found.hits], pagination)

    def export(self, given: requests.ExportInput) -> answers.Exported:
        return export_capsules(self._store, self.settings, given)

    def import_(self, given: requests.ImportInput) -> answers.Imported:
        return import_capsules(self._store, self.settings, given)

    def purge(self, given: requests.PurgeInput) -> answers.Purged:
        days = given.older_than_days
        if days is not None and days < 0:
            raise CapsuleError.invalid("older_than_days", "older_than_days must not be negative")
        workspace = None if given.workspace is None else workspace_or_default(given.workspace)
        older_than_us = None if days is None else min(days, _MAX_DAYS) * _DAY_US
        count, gone = self._store.purge(None if workspace is None else normalise(workspace), older_than_us)
        purged = f"{count} deleted capsule{'' if count == 1 else 's'}" if count else "No deleted capsules"
        where = f' in workspace "{workspace}"' if workspace is not None else ""
        age = f" of more than {days} day{'' if days == 1 else 's'} ago" if days is not None else ""
        rest = "" if gone else "; the file is in use and could not be cleared of their text, so purge again later"
        return answers.Purged(count, f"{purged}{where}{age} {'purged' if count else 'to purge'}{rest}")

    def restore(self, given: requests.RestoreInput) -> answers.Restored:
        target = target_of(given)
        with self._store.writing() as writer:
            capsule = target.find_deleted(writer)
            if capsule.name_norm is not None and writer.by_name(capsule.workspace_norm, capsule.name_norm):
                raise CapsuleError.name_taken(capsule.workspace, capsule.name or "")
            writer.restore(capsule)
        return answers.Restored(True, capsule.id, link(capsule), link(capsule))

    def append(self, given: requests.AppendInput) -> answers.Appended:
        target = target_of(given)
        section, content = given.section or "", given.content or ""
        for field, value in (("section", section), ("content", content)):
            if not value.strip():
                raise CapsuleError.invalid(field, f"{field} is required")
        if open_fence(content):
            raise CapsuleError.invalid("content", "content opens a code fence that it does not close; close it")
        self._await_next_second(target, given.if_updated_at)
        with self._store.writing() as writer:
            old = target.find(writer)
            _check_unchanged(old, given.if_updated_at, given.if_version)
            check_marks("content", content, old.text)
            extended = extend_section(old.text, section, content)
            thin = old.allow_thin or bool(missing_sections(old.text))
            check_text(extended.text, max_chars=self.settings.most_chars, allow_thin=thin)
            new = writer.change(old, with_text(old, extended.text))
        key = link(new)
        return answers.Appended(
            new.id, key, key, extended.section, extended.replaced, warnings=secret_warnings(new.text)
        )

    def compose(self, given: requests.ComposeInput) -> answers.Composed:
        refs = refs_of(given.items)
        if not refs:
            raise CapsuleError.invalid("items", "items must name at least one capsule")
        form = choice("format", given.format, ("markdown", "json"))
        if given.store_as is not None and form == "json":
            raise CapsuleError.invalid("store_as", "Only format markdown can be stored: it has the sections")
        if given.store_as is not None and not (given.store_as.name or "").strip():
            raise CapsuleError.invalid("store_as.name", "store_as.name is required")
        with self._store.reading() as reader:
            parts = [target_of_ref(ref).find(reader) for ref in refs]
        text = bundle_json(parts, self.redact) if form == "json" else bundle_markdown(parts)
        stored = None
        if (kept := given.store_as) is not None:
            store = requests.StoreInput(capsule_text=text, name=kept.name, workspace=kept.workspace, mode=kept.mode)
            stored = self._store_text(store, check=False)
        return answers.Composed(text, len(text), len(parts), stored)

    def history(self, given: requests.HistoryInput) -> answers.History:
        target = target_of(given)
        with self._store.reading() as reader:
            current = target.find(reader, include_deleted=bool(given.include_deleted))
            versions = [current, *reader.past_versions(current.id)]
        include_text = given.version is not None
        if include_text:
            versions = [version for version in versions if version.version == given.version]
            if not versions:
                raise CapsuleError.not_found(f"{target.identifier} version {given.version}")
        items = [version_of(version, self._mode(given.raw), include_text=include_text) for version in versions]
        return answers.History(current.id, link(current), link(current), items[0].version, current.version, items)

    def _await_next_second(self, target: Target, if_updated_at: int | None) -> None:
        """Before a change that is guarded by `updated_at`, wait until the second of the version it replaces is over,
        so that the new version has another `updated_at`, which is still the time."""
        if if_updated_at is None:
            return
        with self._store.reading() as reader:
            capsule = target.find(reader)
        self._store.await_after(capsule.updated_at)

    def _page(self, filters: Filters, limit: int, offset: int | None) -> answers.Page:
        skip = offset_of(offset)
        with self._store.reading() as reader:
            capsules, total = reader.page(filters, limit, skip)
        pagination = answers.Pagination(limit, skip, skip + len(capsules) < total, total)
        return answers.Page([summary(capsule, self.redact) for capsule in capsules], pagination)

    def _mode(self, raw: bool | None) -> Mode | None:
        """The redaction of an answer; None for a raw one."""
        return None if raw else self.redact


def _labelled(old: Capsule, labels: dict[str, Any]) -> Capsule:
    """The capsule with the given labels; a blank value unsets one, and a title falls back to the name."""
    values = {field: tuple(value) if field == "tags" else unless_blank(value) for field, value in labels.items()}
    if "title" in values:
        values["title"] = values["title"] or old.name
    return replace(old, **values)


def _check_unchanged(capsule: Capsule, if_updated_at: int | None, if_version: int | None) -> None:
    """Compare and set. `if_version` is exact, `if_updated_at` has the resolution of a second."""
    if if_version not in (None, capsule.version) or if_updated_at not in (None, capsule.updated_at):
        raise CapsuleError.conflict(capsule.updated_at, capsule.version)


def _check_marks(old: Capsule, new: Capsule) -> None:
    """Refuse redaction marks in the text and the labels of a change."""
    check_marks("capsule_text", new.text, old.text)
    for field in _LABELS:
        check_marks(field, _joined(getattr(new, field)), _joined(getattr(old, field)))


def _joined(label: str | tuple[str, ...] | None) -> str:
    return label if isinstance(label, str) else " ".join(label or ())


def _warnings(old: Capsule, new: Capsule) -> list[str]:
    return secret_warnings(new.text) + loss_warnings(old.text, new.text, old.version)
