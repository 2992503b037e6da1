"""`python -m fscil` is the command `fscil`."""

from fscil.command.cli import main

if __name__ == "__main__":
    main()
