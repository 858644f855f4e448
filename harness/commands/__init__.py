"""The command line: ``python -m harness COMMAND``."""
