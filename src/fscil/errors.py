"""The exception that users are meant to read."""


class FscilError(Exception):
    """A problem the user can solve: its text says what is wrong, where, and what to do, in one sentence."""


class UnknownEncoder(FscilError):
    """No encoder has this name here; what was made elsewhere may name one that is newer."""
