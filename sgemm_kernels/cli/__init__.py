"""The command line, and the cell magic of notebooks."""
