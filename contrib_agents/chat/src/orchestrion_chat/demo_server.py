"""A small MCP server to try tools with: `python -m orchestrion_chat.demo_server [--http PORT]`.

Two of its tools only read; `note` changes something, its list of notes.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    """Serve on standard input and output, or over HTTP on this machine."""
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("orchestrion-demo")
    reads = ToolAnnotations(read_only_hint=True)
    notes: list[str] = []

    @server.tool(annotations=reads)
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=reads)
    def divide(a: float, b: float) -> float:
        """Divide a by b."""
        return a / b

    @server.tool()
    def note(text: str) -> str:
        """Write a note down."""
        notes.append(text)
        return f"{len(notes)} notes"

    if arguments[:1] == ["--http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(arguments[1]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(sys.argv[1:])
