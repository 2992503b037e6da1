"""The one exception that users are meant to read."""


class FscilError(Exception):
    """A problem the user can solve: its text says what is wrong, where, and what to do, in one sentence."""
