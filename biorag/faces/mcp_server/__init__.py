"""An index as assistants reach it, by the Model Context Protocol."""
