"""`python -m weft_nn.lab resources`: the line that starts Ray on this machine, with its devices."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import weft_nn_command

from ._device import line, of_machine


def main() -> int:
    """Prints the line."""
    parser = argparse.ArgumentParser(prog="python -m weft_nn.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("resources", help="print the line that starts Ray on this machine")
    one.add_argument("--address", default="HEAD:6379", help="of the first machine, as `ray start --head` says it")
    one.add_argument("--head", action="store_true", help="this is the first machine")
    one.add_argument("--device", action="append", default=[], help="a number of `weft devices`, cpu, or a part of a name; several times")
    one.add_argument("--launcher", default="", help="a program, with its arguments, that every job is started by")
    one.add_argument("--unit", default="", help="a name for a part of the device that can be timed beside others, such as some cores")
    args = parser.parse_args()
    words = [*weft_nn_command.words(args.launcher), "devices", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr or done.stdout, file=sys.stderr)
        return done.returncode
    devices = of_machine(json.loads(done.stdout), args.device, args.launcher, args.unit)
    if not devices:
        print(f"no device of `weft devices` is called {', '.join(args.device)}", file=sys.stderr)
        return 5
    print(line(devices, "" if args.head else args.address))
    return 0


if __name__ == "__main__":
    sys.exit(main())
