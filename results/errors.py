"""Every error that paceline raises on purpose; only the command line catches them."""


class PacelineError(Exception):
    """A finished sentence that names the place and the way out."""


class InputError(PacelineError):
    """Something the user wrote cannot be used: a suite, a trace, an argument."""


class EngineError(PacelineError):
    """An engine could not be started, reached or stopped."""


class UnsupportedError(PacelineError):
    """The engine cannot do what the point asks; the point is recorded so, and the run goes on."""


class FolderError(PacelineError):
    """A run folder cannot be read or written."""
