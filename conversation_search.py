# /// script
# requires-python = ">=3.11"
# dependencies = ["backstory"]
#
# [tool.uv.sources]
# backstory = { path = ".", editable = true }
# ///
"""Past Claude Code conversations over MCP on stdin and stdout: `uv run conversation_search.py [PATTERN]`.

PATTERN selects projects by the names of their folders under ~/.claude/projects, as in "-home-me-sites*"; without one,
all of them. The same as `backstory mcp --tools conversations [PATTERN]`, straight from a checkout.
"""

import sys

from backstory.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["mcp", "--tools", "conversations"]
    main()
