"""Configuration files of agents in JSON with comments, TOML and YAML: one entry is set or removed as text."""

from .entries import Format, Refused, drop_entry, read_entry, set_entry

__all__ = ["Format", "Refused", "drop_entry", "read_entry", "set_entry"]
