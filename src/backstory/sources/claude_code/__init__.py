"""Claude Code: transcripts below `~/.claude/projects`, and those of Claude Desktop's agent mode (Cowork)."""
