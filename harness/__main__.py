"""``python -m harness``."""

from harness.commands.cli import main

if __name__ == "__main__":
    main()
