"""What one talks to beside the command line: chat, page, APIs, MCP; it imports the core, never the other way round."""
