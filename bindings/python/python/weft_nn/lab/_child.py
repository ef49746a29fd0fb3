"""Runs one program on one device: with the device's lock, a limit, and an end when nobody waits for it any more.

It is a program of its own, which imports nothing but the standard library:

    python _child.py LOCK LIMIT check|job WHAT PROGRAM ARGUMENTS...

The lock is a file for each device. While a job runs, the file has the job in words; a job that ends well empties it. What is
left in it is the device's mark: then only a check run is let in. So a mark outlives processes, sessions and clusters. The program
inherits the lock: as long as a hung one cannot be ended, no other job starts on the device.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, List

# Exit codes beside those of the program, which are below 64 (docs/json.md), or 128 and the number of a signal.
BUSY, MARKED, LATE, CANNOT = 75, 76, 77, 78
# Seconds to wait for the lock.
PATIENCE = 3.0
# Exit codes of `weft` that say nothing against the device.
FINE = (0, 1, 2, 3, 4)


def opened(path: str) -> IO[str]:
    """The file of the lock, which everybody on the machine may use."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
        for one, mode in ((path, 0o666), (os.path.dirname(path), 0o1777)):
            try:
                os.chmod(one, mode)
            except PermissionError:
                pass  # another user has made it
    return open(path, "r+", encoding="utf-8")


def locked(file: IO[str]) -> bool:
    """Takes the lock, if it is free."""
    try:
        if sys.platform == "win32":
            import msvcrt

            # Behind all text: others can read that.
            os.lseek(file.fileno(), 1 << 30, os.SEEK_SET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write(file: IO[str], text: str) -> None:
    """Puts this into the file of the lock, instead of what is there."""
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def end(child: "subprocess.Popen[bytes]") -> None:
    """Ends the program and all that it has started."""
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(child.pid)], capture_output=True)
    else:
        os.killpg(child.pid, signal.SIGKILL)


def run(lock: str, limit: float, check: bool, what: str, program: List[str]) -> int:
    """Gives the exit code: of the program, or one of those above, with the reason on stdout."""
    file, left = opened(lock), threading.Event()
    children: "List[subprocess.Popen[bytes]]" = []

    def listen() -> None:
        sys.stdin.read()
        left.set()
        for child in children:
            end(child)

    threading.Thread(target=listen, daemon=True).start()
    until = time.monotonic() + PATIENCE
    while not locked(file):
        if left.wait(0.1) or time.monotonic() > until:
            print(file.read())
            return BUSY
    mark = file.read()
    if mark and not check:
        print(mark)
        return MARKED
    write(file, f"{what}, which was not finished")
    unix = sys.platform != "win32"
    try:
        child = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, start_new_session=unix, pass_fds=[file.fileno()] if unix else ()
        )
    except OSError as error:
        write(file, mark)
        print(error)
        return CANNOT

    children.append(child)
    if left.is_set():
        end(child)
    try:
        code = child.wait(limit)
    except subprocess.TimeoutExpired:
        end(child)
        write(file, f"{what}, which had not ended after {limit:g} s")
        print(f"no end within {limit:g} s")
        return LATE
    if code == 0 or (code in FINE and not check):
        write(file, "")
    elif mark:
        write(file, mark)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] != "--inner":
        # A worker of Ray that ends kills its own children, but not theirs: the inner one is left to end the program.
        inner = [sys.executable, __file__, "--inner", *sys.argv[1:]]
        sys.exit(subprocess.run(inner, start_new_session=sys.platform != "win32").returncode)
    code = run(sys.argv[2], float(sys.argv[3]), sys.argv[4] == "check", sys.argv[5], sys.argv[6:])
    sys.stdout.flush()
    # Not `sys.exit`: the thread reads stdin, and the interpreter would wait for its lock.
    os._exit(code)
