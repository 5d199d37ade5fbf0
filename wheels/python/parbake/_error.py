"""What the library reports beside Python's own exceptions."""


class Error(RuntimeError):
    """Something that is no mistake in an argument: a library, a driver, a compiler, a file."""

    @property
    def code(self):
        """The stable code, `PB-2103`, that docs/reference/errors.md explains; None if there is none."""
        return code(self)


class NotCoveredError(Error):
    """No bundle has the kernel, and it may not or cannot be compiled here. The message says what was searched."""


def code(error):
    """The code in the message of any exception that a call raised."""
    _, begun, rest = str(error).partition("[PB-")
    digits, closed, _ = rest.partition("]")
    return f"PB-{digits}" if begun and closed and digits.isdigit() else None
