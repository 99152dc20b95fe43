"""The command line and the notebook cell magic."""
