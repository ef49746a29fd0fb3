"""The exception of the package."""

from __future__ import annotations

from typing import Optional

CHECK, USAGE, INPUT, UNSUPPORTED, DEVICE, BUG = range(1, 7)


class Error(Exception):
    """Why a model was not loaded, compiled or run.

    message: one sentence.
    code: 1 a check failed, 2 wrong use of a function, 3 a bad model or input, 4 operators that Weft does not have,
        5 a device that is not there or has not enough memory, 6 a bug of Weft's: the exit codes of the command.
    place: where it is: a file, a node and its operator, an input; or None.
    help: what to do; or None.
    """

    def __init__(
        self, message: str, code: int = BUG, place: Optional[str] = None, help: Optional[str] = None
    ) -> None:
        super().__init__(message, code, place, help)
        self.message = message
        self.code = code
        self.place = place
        self.help = help

    def __str__(self) -> str:
        place = f"\n  at: {self.place}" if self.place else ""
        help = f"\n  help: {self.help}" if self.help else ""
        return f"{self.message}{place}{help}"
