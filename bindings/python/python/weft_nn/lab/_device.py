"""A device of a lab as a custom resource of Ray: its name in the cluster says what the device is and how to reach it."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Sequence
from urllib.parse import parse_qsl, urlencode

PREFIX = "weft?"


class Device(NamedTuple):
    """A device of the cluster.

    name, driver: as `weft devices` has them; devices with the same of both are of one kind.
    device: what `--device` takes on its machine.
    id: the device itself on its machine, whatever driver it is under: jobs on one `id` never run at the same time.
    launcher: the program, with its arguments, that jobs are started by; "" without.
    node, host: Ray's id and the name of the machine.
    """

    name: str
    driver: str
    device: str
    id: str
    launcher: str = ""
    node: str = ""
    host: str = ""

    @property
    def kind(self) -> str:
        """Devices of one kind share the work."""
        return f"{self.name} ({self.driver})"

    @property
    def resource(self) -> str:
        """The name of its custom resource, such as `weft?name=NVIDIA+T4&driver=535.1&device=0&id=10de%3A1eb8%3A0`."""
        fields = [(key, value) for key, value in self._asdict().items() if value and key not in ("node", "host")]
        return PREFIX + urlencode(fields)


def read(resource: str, node: str, host: str) -> Device:
    """The device of a custom resource."""
    fields = dict(parse_qsl(resource[len(PREFIX) :]))
    known = {key: fields.get(key, "") for key in ("name", "driver", "device", "id", "launcher")}
    return Device(**known, node=node, host=host)


def of_machine(said: Dict[str, Any], chosen: Sequence[str], launcher: str, unit: str) -> List[Device]:
    """Devices of a machine.

    said: what `weft devices --json` says.
    chosen: numbers, "cpu" or parts of names; without, all adapters, but software drivers only where there is nothing else.
    launcher: for all of them.
    unit: a part of the device, such as some cores, that can be timed beside others; "" is all of it.
    """
    part = f":{unit}" if unit else ""
    devices, seen = [], {}  # type: List[tuple[bool, Device]], Dict[str, int]
    for one in said["devices"]:
        # Two equal cards differ in their place; one card under two interfaces of the system is one device.
        same = f"{one['vendor_id']:04x}:{one['device_id']:04x}"
        place = seen[f"{same} {one['backend']}"] = seen.get(f"{same} {one['backend']}", -1) + 1
        software = one["type"] == "cpu"
        identity = "processor" if software else f"{same}:{place}"
        made = Device(one["name"], one["driver"], str(one["index"]), identity + part, launcher)
        devices.append((software, made))
    cpu = said["cpu"]
    driver = f"weft, {cpu['instructions']}, {cpu['threads']} threads"
    devices.append((True, Device(cpu["name"], driver, "cpu", "processor" + part, launcher)))
    if chosen:
        return [d for _, d in devices if any(c == d.device or (c not in ("cpu",) and not c.isdigit() and c in d.name) for c in chosen)]
    hardware = [d for software, d in devices if not software]
    return hardware or [devices[0][1]]


def line(devices: Sequence[Device], address: str) -> str:
    """The line that starts Ray on the machine of these devices; of the first machine without an address."""
    resources = json.dumps({d.resource: 1 for d in devices})
    quoted = '"' + resources.replace('"', '\\"') + '"' if os.name == "nt" else f"'{resources}'"
    return f"ray start {f'--address={address}' if address else '--head'} --resources={quoted}"
