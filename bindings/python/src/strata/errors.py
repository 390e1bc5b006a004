"""Exceptions by status of strata.h. Each is also the built-in exception that fits."""


class StrataError(RuntimeError):
    """`status` is the name of the status, such as "does_not_fit"; the text names the object and the numbers."""

    status = "internal"


class InvalidError(StrataError, ValueError):
    """A wrong argument, setting or file content; nothing was changed."""

    status = "invalid"


class NotFoundError(StrataError, LookupError):
    """A file or tensor that does not exist."""

    status = "not_found"


class DoesNotFitError(StrataError, MemoryError):
    """A budget is too small; nothing was changed. The text has budgets that fit."""

    status = "does_not_fit"


class OutOfMemoryError(StrataError, MemoryError):
    """The system refused memory although the budget allowed it."""

    status = "out_of_memory"


class StorageError(StrataError, OSError):
    """Reading or writing failed, the file system is full, or what was read is damaged: see `status`."""


class UnsupportedError(StrataError, NotImplementedError):
    """This build, machine or process cannot do it."""

    status = "unsupported"


class DivergedError(StrataError, ArithmeticError):
    """NaN or infinity where training needs a finite number."""

    status = "diverged"


class ClosedError(StrataError):
    """The session was closed."""

    status = "closed"


_CLASSES = {kind.status: kind for kind in (InvalidError, NotFoundError, DoesNotFitError, OutOfMemoryError,
                                           UnsupportedError, DivergedError, ClosedError)}  # fmt: skip


def error(status, text):
    """The exception for a status by name."""
    if status in ("io_error", "no_space", "corrupt"):
        made = StorageError(text)
        made.status = status
        return made
    kind = _CLASSES.get(status, StrataError)
    made = kind(text)
    made.status = status
    return made
