"""The command `weft` of the package `weft-nn`."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from typing import Any, List, Optional

# The environment variable with a program, and its arguments, that starts the command: processes that the command starts
# for itself, such as those that time a schedule, are started by it too.
LAUNCHER = "WEFT_LAUNCHER"


def words(launcher: Optional[str] = None) -> List[str]:
    """The program and the arguments that start the command; by a launcher, which is that of WEFT_LAUNCHER without one."""
    given = os.environ.get(LAUNCHER, "") if launcher is None else launcher
    return [*shlex.split(given, posix=os.name != "nt"), sys.executable, __file__]


def _native() -> Any:
    """The native module of `weft_nn` by itself: the package would load numpy, which takes longer than most commands."""
    package = importlib.util.find_spec("weft_nn")
    folders = [Path(folder) for folder in (package and package.submodule_search_locations) or []]
    files = [folder / f"_native{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES]
    path = next(file for file in files if file.exists())
    loader = ExtensionFileLoader("weft_nn._native", str(path))
    spec = importlib.util.spec_from_file_location("weft_nn._native", path, loader=loader)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def main() -> int:
    """Runs the command with the arguments of this process; gives its exit code."""
    # Python's own handler only sets a flag, which nothing looks at while the command runs.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return int(_native().command(sys.argv[1:], words()))


if __name__ == "__main__":
    sys.exit(main())
