"""Live sessions: a durable, reactive, branching store of typed conversation entries (`session::*`).

`Live` is the whole domain below any wire. A face starts one, registers `live.functions()` and `live.trigger_types()`,
forwards calls to `live.call` and bindings to `live.bind`; nothing else is needed.
"""

from __future__ import annotations

from .events import Deliver, Event, TriggerType
from .functions import Function
from .runtime import Live
from .types import LiveError

__all__ = ["Deliver", "Event", "Function", "Live", "LiveError", "TriggerType"]
