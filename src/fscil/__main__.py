"""The command `fscil`, also as `python -m fscil`."""

import sys


def main() -> None:
    """Runs the command; Ctrl-C while it is being imported, which takes half a second, shows no traceback either."""
    try:
        from fscil.command import cli
    except KeyboardInterrupt:
        sys.stderr.write("fscil: stopped\n")
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
