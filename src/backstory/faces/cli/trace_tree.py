"""The spans of a trace as a tree: their order, runs of the same tool, and the critical path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Tree"]

Span = dict[str, Any]
# Shorter runs of the same tool are shown call by call.
_LEAST_RUN = 4


class Tree:
    def __init__(self, spans: list[Span]) -> None:
        self._children: dict[str | None, list[Span]] = {}
        for span in spans:
            self._children.setdefault(span.get("parentId"), []).append(span)
        self._spans = {span["id"]: span for span in spans}
        # Spans that name one another as their parents have no root; each is shown once all the same.
        self._roots = self._children.get(None) or spans
        self.begin: int = min(span["startTime"] for span in spans)
        self.length: int = max(max(map(_end, spans)) - self.begin, 1)
        self.critical = self._critical_path()

    def runs(self, only: set[str] | None = None) -> Iterator[tuple[list[Span], int]]:
        """Spans with their depth, parents first; successful calls of one tool in a row come together."""
        waiting = [(run, 0) for run in reversed(self._grouped(self._roots, only))]
        seen: set[str] = set()
        while waiting:
            run, depth = waiting.pop()
            if run[0]["id"] in seen:
                continue
            seen.update(span["id"] for span in run)
            yield run, depth
            children = self._children.get(run[0]["id"], []) if len(run) == 1 else []
            waiting += [(inner, depth + 1) for inner in reversed(self._grouped(children, only))]

    def with_errors(self) -> set[str]:
        """The ids of the spans that failed, and of those above them."""
        kept: set[str] = set()
        for span in self._spans.values():
            here: Span | None = span if span["status"] == "error" else None
            while here is not None and here["id"] not in kept:
                kept.add(here["id"])
                here = self._spans.get(here.get("parentId") or "")
        return kept

    def _grouped(self, spans: list[Span], only: set[str] | None) -> list[list[Span]]:
        runs: list[list[Span]] = []
        for span in spans:
            if only is not None and span["id"] not in only:
                continue
            if runs and self._joins(runs[-1][-1], span):
                runs[-1].append(span)
            else:
                runs.append([span])
        return [part for run in runs for part in ([run] if len(run) >= _LEAST_RUN else [[span] for span in run])]

    def _joins(self, before: Span, span: Span) -> bool:
        same = before["name"] == span["name"] and before["data"]["type"] == span["data"]["type"] == "SPAN"
        return (
            same
            and before["status"] == span["status"] == "success"
            and not self._children.get(before["id"])
            and not self._children.get(span["id"])
        )

    def _critical_path(self) -> set[str]:
        """The spans the trace had to wait for: backwards from the end, the child that ended last before the next one
        began, in each of these spans again."""
        path: set[str] = set()
        waiting = [max(self._roots, key=_end)]
        while waiting:
            span = waiting.pop()
            if span["id"] in path:
                continue
            path.add(span["id"])
            moment = _end(span)
            for child in sorted(self._children.get(span["id"], []), key=_end, reverse=True):
                if _end(child) <= moment and _end(child) > child["startTime"]:
                    waiting.append(child)
                    moment = child["startTime"]
        return path


def _end(span: Span) -> int:
    end = span.get("endTime")
    return span["startTime"] if end is None else int(end)
