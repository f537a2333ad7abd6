"""The command line: one file per command, thin; `main` wires them together."""
