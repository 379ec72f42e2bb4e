"""The rules of the capsule tools: what is checked in which order, and what happens then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...config import CapsuleSettings
from ..base import excerpt
from . import inputs, types
from .addressing import Target, refs_of, target_of, target_of_ref
from .capsule import SECOND, Capsule, item, link, search_hit, summary, with_text
from .editing import bundle_json, bundle_markdown, extend_section
from .errors import CapsuleError
from .exchange import export_capsules, import_capsules
from .limits import check_fields, check_text, secret_warnings
from .lint import missing_sections, open_fence
from .reader import Filters
from .requests import choice, filters_of, limit_of, offset_of, text_of, unless_blank
from .search import search
from .store import Change, Store
from .wording import normalise, workspace_or_default

__all__ = ["Capsules"]

_MAX_QUERY_CHARS = 1000
_DAY_US = 86_400 * SECOND
_MAX_DAYS = 1_000_000
_EDITABLE = ("title", "tags", "source", "run_id", "phase", "role", "source_session")


class Capsules:
    """One store of capsules. Every method takes a tool's arguments and gives its result, or raises CapsuleError."""

    def __init__(
        self,
        home: Path,
        settings: CapsuleSettings | None = None,
        listener: Callable[[], None] | None = None,
        *,
        store: Store | None = None,
    ) -> None:
        self.home = home
        self.settings = settings or CapsuleSettings()
        self._store = store or Store(home, listener)

    def close(self) -> None:
        self._store.close()

    # What the rest of Backstory asks

    def changes_since(self, seq: int) -> Iterator[Change]:
        """What changed after `seq`, in order, for an index elsewhere that follows this store."""
        return self._store.changes_since(seq)

    def of_session(self, source_session: str) -> list[types.Summary]:
        """The capsules that were distilled from this session, newest first."""
        with self._store.reading() as reader:
            return [summary(capsule) for capsule in reader.of_session(source_session)]

    # The tools

    def store(self, given: inputs.StoreInput) -> types.Stored:
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
                return types.Stored(
                    created.id, link(created), link(created), created=True, warnings=secret_warnings(created)
                )
            if mode == "error":
                raise CapsuleError.name_taken(capsule.workspace, given.name or "")
            replaced = writer.change(taken, replace(capsule, created_at=taken.created_at))
            return types.Stored(
                replaced.id, link(replaced), link(replaced), replaced=True, warnings=secret_warnings(replaced)
            )

    def fetch(self, given: inputs.FetchInput) -> types.Item:
        target = target_of(given)
        with self._store.reading() as reader:
            capsule = target.find(reader, include_deleted=bool(given.include_deleted))
        return item(capsule, include_text=given.include_text is not False)

    def fetch_many(self, given: inputs.FetchManyInput) -> types.Fetched:
        fetched = types.Fetched([], [])
        with self._store.reading() as reader:
            for ref in refs_of(given.items):
                try:
                    capsule = target_of_ref(ref).find(reader, include_deleted=bool(given.include_deleted))
                    fetched.items.append(item(capsule, include_text=given.include_text is not False))
                except CapsuleError as error:
                    fetched.errors.append(types.RefError(excerpt(ref), error.code, excerpt(error.message)))
        return fetched

    def update(self, given: inputs.UpdateInput) -> types.Updated:
        target = target_of(given)
        self._await_next_second(target, given.if_updated_at)
        fields = {field: value for field in _EDITABLE if (value := getattr(given, field)) is not None}
        if not fields and given.capsule_text is None:
            choices = ", ".join(("capsule_text", *_EDITABLE))
            raise CapsuleError.invalid("capsule_text", f"Nothing to update; give at least one of {choices}")
        text = given.capsule_text
        with self._store.writing() as writer:
            old = target.find(writer)
            _check_unchanged(old, given.if_updated_at, given.if_version)
            new = _edited(old, fields)
            check_fields(new)
            if text is not None:
                check_text(text, max_chars=self.settings.most_chars, allow_thin=bool(given.allow_thin))
                new = with_text(replace(new, allow_thin=bool(given.allow_thin)), text)
            writer.change(old, new)
        return types.Updated(new.id, link(new), link(new), warnings=secret_warnings(new))

    def delete(self, given: inputs.DeleteInput) -> types.Deleted:
        target = target_of(given)
        with self._store.writing() as writer:
            capsule = target.find(writer)
            _check_unchanged(capsule, given.if_updated_at, given.if_version)
            writer.delete(capsule)
        return types.Deleted(True, capsule.id)

    def latest(self, given: inputs.LatestInput) -> types.Latest:
        filters = filters_of(given, workspace=workspace_or_default(given.workspace))
        with_text = bool(given.include_text)
        with self._store.reading() as reader:
            capsule = reader.latest(filters, with_text=with_text)
        return types.Latest(item(capsule, include_text=with_text) if capsule else None)

    def list_workspace(self, given: inputs.ListInput) -> types.Page:
        filters = filters_of(given, workspace=workspace_or_default(given.workspace))
        return self._page(filters, limit_of(given.limit, 20, 100), given.offset)

    def inventory(self, given: inputs.InventoryInput) -> types.Page:
        filters = filters_of(given, workspace=given.workspace, tag=given.tag, name_prefix=given.name_prefix)
        return self._page(filters, limit_of(given.limit, 100, 500), given.offset)

    def search(self, given: inputs.SearchInput) -> types.SearchPage:
        if given.query is None or not given.query.strip():
            raise CapsuleError.invalid("query", "query is required")
        if len(given.query) > _MAX_QUERY_CHARS:
            raise CapsuleError.invalid("query", f"query must have at most {_MAX_QUERY_CHARS} characters")
        filters = filters_of(given, workspace=given.workspace, tag=given.tag)
        limit, offset = limit_of(given.limit, 20, 100), offset_of(given.offset)
        with self._store.reading() as reader:
            found = search(reader.connection, given.query, filters, limit, offset)
        pagination = types.Pagination(limit, offset, offset + len(found.hits) < found.total, found.total)
        return types.SearchPage([search_hit(hit.capsule, hit.snippet) for hit in found.hits], pagination)

    def export(self, given: inputs.ExportInput) -> types.Exported:
        return export_capsules(self._store, self.home, self.settings, given)

    def import_(self, given: inputs.ImportInput) -> types.Imported:
        return import_capsules(self._store, self.home, self.settings, given)

    def purge(self, given: inputs.PurgeInput) -> types.Purged:
        days = given.older_than_days
        if days is not None and days < 0:
            raise CapsuleError.invalid("older_than_days", "older_than_days must not be negative")
        workspace = None if given.workspace is None else workspace_or_default(given.workspace)
        older_than_us = None if days is None else min(days, _MAX_DAYS) * _DAY_US
        count, gone = self._store.purge(None if workspace is None else normalise(workspace), older_than_us)
        what = f"{count} deleted capsule{'' if count == 1 else 's'}" if count else "No deleted capsules"
        where = f' in workspace "{workspace}"' if workspace is not None else ""
        age = f" that were deleted more than {days} day{'' if days == 1 else 's'} ago" if days is not None else ""
        rest = "" if gone else "; the file is in use and could not be cleared of their text, so purge again later"
        return types.Purged(count, f"{what}{where}{age} {'purged' if count else 'to purge'}{rest}")

    def restore(self, given: inputs.RestoreInput) -> types.Restored:
        target = target_of(given)
        with self._store.writing() as writer:
            capsule = target.find_deleted(writer)
            if capsule.name_norm is not None and writer.by_name(capsule.workspace_norm, capsule.name_norm):
                raise CapsuleError.name_taken(capsule.workspace, capsule.name or "")
            writer.restore(capsule)
        return types.Restored(True, capsule.id, link(capsule), link(capsule))

    def append(self, given: inputs.AppendInput) -> types.Appended:
        target = target_of(given)
        for field in ("section", "content"):
            if not (getattr(given, field) or "").strip():
                raise CapsuleError.invalid(field, f"{field} is required")
        if open_fence(given.content or ""):
            raise CapsuleError.invalid("content", "content opens a code fence that it does not close; close it")
        self._await_next_second(target, given.if_updated_at)
        with self._store.writing() as writer:
            old = target.find(writer)
            _check_unchanged(old, given.if_updated_at, given.if_version)
            extended = extend_section(old.text, given.section or "", given.content or "")
            thin = old.allow_thin or bool(missing_sections(old.text))
            check_text(extended.text, max_chars=self.settings.most_chars, allow_thin=thin)
            new = writer.change(old, with_text(old, extended.text))
        return types.Appended(
            old.id, link(old), link(old), extended.section, extended.replaced, warnings=secret_warnings(new)
        )

    def compose(self, given: inputs.ComposeInput) -> types.Composed:
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
        text = bundle_json(parts) if form == "json" else bundle_markdown(parts)
        stored = None
        if given.store_as is not None:
            kept = given.store_as
            stored = self.store(
                inputs.StoreInput(capsule_text=text, name=kept.name, workspace=kept.workspace, mode=kept.mode)
            )
        return types.Composed(text, len(text), len(parts), stored)

    def history(self, given: inputs.HistoryInput) -> types.History:
        target = target_of(given)
        with self._store.reading() as reader:
            current = target.find(reader, include_deleted=bool(given.include_deleted))
            versions = [current, *reader.past_versions(current.id)]
        if given.version is not None:
            versions = [version for version in versions if version.version == given.version]
            if not versions:
                identifier = f"{target.identifier} version {given.version}"
                raise CapsuleError.not_found(identifier)
        shown = [_version(version, include_text=given.version is not None) for version in versions]
        version = current.version if given.version is None else given.version
        return types.History(current.id, link(current), link(current), version, current.version, shown)

    def _await_next_second(self, target: Target, if_updated_at: int | None) -> None:
        """Before a change that is guarded by `updated_at`, wait until the second of the version it replaces is over,
        so that the new version has another `updated_at`, which is still the time."""
        if if_updated_at is None:
            return
        with self._store.reading() as reader:
            capsule = target.find(reader)
        self._store.await_after(capsule.updated_at)

    def _page(self, filters: Filters, limit: int, offset: int | None) -> types.Page:
        skip = offset_of(offset)
        with self._store.reading() as reader:
            capsules, total = reader.page(filters, limit, skip)
        pagination = types.Pagination(limit, skip, skip + len(capsules) < total, total)
        return types.Page([summary(capsule) for capsule in capsules], pagination)


def _edited(old: Capsule, fields: dict[str, Any]) -> Capsule:
    """The capsule with the given fields set; a blank value unsets one, and a title goes back to the name."""
    values = {field: tuple(value) if field == "tags" else unless_blank(value) for field, value in fields.items()}
    if "title" in values:
        values["title"] = values["title"] or old.name
    return replace(old, **values)


def _check_unchanged(capsule: Capsule, if_updated_at: int | None, if_version: int | None) -> None:
    """Compare and set. `if_version` is exact, `if_updated_at` has the resolution of a second."""
    if if_version not in (None, capsule.version) or if_updated_at not in (None, capsule.updated_at):
        raise CapsuleError.changed_meanwhile(capsule.updated_at, capsule.version)


def _version(capsule: Capsule, *, include_text: bool) -> types.Version:
    return types.Version(
        capsule.version,
        capsule.updated_at,
        capsule.chars,
        capsule.tokens,
        title=capsule.title,
        tags=capsule.tags,
        source=capsule.source,
        source_session=capsule.source_session,
        capsule_text=capsule.text if include_text else None,
    )
