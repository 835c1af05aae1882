"""The error of builds, which both the builder and its checks raise."""


class BuildError(RuntimeError):
    """A build that must not go on; the message is one line for a person."""
