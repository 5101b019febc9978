"""The `rawgpu` command: `main.py` has the table of commands, each of which is a module."""
