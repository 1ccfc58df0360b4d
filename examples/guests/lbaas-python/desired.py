"""What is asked for, checked, and what resources that makes.

Pure: knows no Engine and no clock. `app.py` asks; `plan.py` compares.
"""

import ipaddress
import json
from dataclasses import dataclass

from componentize_py_types import Err
from wit_world.exports.reconciliation import Desired, Error_InvalidInput
from wit_world.imports.types import (
    Backend,
    Bind,
    Frontend,
    Kind,
    Mode,
    Server,
    Spec,
    Spec_Backend,
    Spec_Bind,
    Spec_Frontend,
    Spec_Server,
)

HEALTH_CHECK = '"adv_check": "tcp-check"'


def address(text):
    """The address that a text is, an IPv4-mapped one as IPv4; None where it is none."""
    if "%" in text or "/" in text:
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def address_key(text):
    """Orders and compares: IPv4, IPv6, then text that is no address."""
    found = address(text)
    return (9, 0, text) if found is None else (found.version, int(found), "")


def spelled(text):
    """The one spelling that is sent."""
    found = address(text)
    return text if found is None else found.compressed


def tag(desired):
    return f"anxccm-svc-uid={desired.service_uid}"


def joined(*parts):
    return ".".join(part for part in parts if part)


@dataclass
class PortSpecs:
    """One port's resources. Identifiers of parents are filled in when they are known."""

    backend: Backend
    frontend: Frontend
    binds: list[Bind]
    servers: list[Server]


def port_specs(desired: Desired, load_balancer: str, port) -> PortSpecs:
    name = joined(port.name, desired.name_suffix)
    addresses = sorted({address_key(text): text for text in desired.external_addresses}.items())
    return PortSpecs(
        backend=Backend(name, load_balancer, Mode.TCP, HEALTH_CHECK),
        frontend=Frontend(name, load_balancer, Mode.TCP, ""),
        binds=[
            Bind(joined(f"v{key[0]}", name), "", spelled(text), port.external) for key, text in addresses
        ],
        servers=[
            Server(joined(target.name, name), "", spelled(target.address), port.internal, "enabled")
            for target in desired.servers
        ],
    )


# Fields in the order in which resources are compared and sorted.
FIELDS = {
    Kind.BACKEND: ("name", "load_balancer", "mode", "health_check"),
    Kind.FRONTEND: ("name", "load_balancer", "mode", "default_backend"),
    Kind.BIND: ("name", "frontend", "address", "port"),
    Kind.SERVER: ("name", "backend", "ip", "port", "check"),
}

KIND_OF = {
    Spec_Backend: Kind.BACKEND,
    Spec_Frontend: Kind.FRONTEND,
    Spec_Bind: Kind.BIND,
    Spec_Server: Kind.SERVER,
}

SPEC_OF = {kind: spec for spec, kind in KIND_OF.items()}


def kind_of(spec: Spec) -> Kind:
    return KIND_OF[type(spec)]


def spec_key(spec: Spec):
    """Equal where two resources are the same; orders them by kind, then field by field."""

    def key(field):
        value = getattr(spec.value, field)
        if field in ("address", "ip"):
            return address_key(value)
        if isinstance(value, Mode):
            return value.value
        return value.encode() if isinstance(value, str) else value

    kind = kind_of(spec)
    return (kind.value, *(key(field) for field in FIELDS[kind]))


def check(desired: Desired):
    """Refuses the first field that can't be, in the order of the records."""

    def refuse(field, value, reason):
        raise Err(Error_InvalidInput(f"{field}: was {json.dumps(value, ensure_ascii=False)}, {reason}"))

    def distinct(field, values, shown, what=""):
        for index, value in enumerate(values):
            if value in values[:index]:
                refuse(f"{field}[{index}]{what}", shown[index], f"must differ from {field}[{values.index(value)}]{what}")

    def each(field, items, own, key, what=""):
        """Each element's own checks before the comparison with earlier ones."""
        for index, item in enumerate(items):
            own(index, item)
            distinct(field, [key(item) for item in items[: index + 1]], [getattr(i, what[1:]) if what else i for i in items], what)

    def is_address(field, text):
        found = address(text)
        if found is None:
            refuse(field, text, "must be an IP address")
        if found.is_unspecified:
            refuse(field, text, "must not be the unspecified address")

    def not_empty(field, text):
        if not text:
            refuse(field, text, "must not be empty")

    if not desired.load_balancers:
        refuse("load-balancers", [], "must hold at least one identifier")
    each("load-balancers", desired.load_balancers, lambda i, text: not_empty(f"load-balancers[{i}]", text), str)
    not_empty("service-uid", desired.service_uid)
    each(
        "external-addresses",
        desired.external_addresses,
        lambda i, text: is_address(f"external-addresses[{i}]", text),
        address_key,
    )
    check_ports(desired, refuse)
    for index, server in enumerate(desired.servers):
        not_empty(f"servers[{index}].name", server.name)
        distinct(
            "servers",
            [server.name for server in desired.servers[: index + 1]],
            [server.name for server in desired.servers],
            ".name",
        )
        is_address(f"servers[{index}].address", server.address)
    if desired.backoff_steps < 1:
        refuse("backoff-steps", desired.backoff_steps, "must be at least 1")


def check_ports(desired: Desired, refuse):
    for index, port in enumerate(desired.ports):
        here = f"ports[{index}]"
        earlier = desired.ports[:index]
        if not port.name and not desired.name_suffix:
            refuse(f"{here}.name", port.name, "must not be empty where name-suffix is empty")
        for other, before in enumerate(earlier):
            if before.name == port.name:
                refuse(f"{here}.name", port.name, f"must differ from ports[{other}].name")
        if port.external == 0:
            refuse(f"{here}.external", port.external, "must be 1 to 65535")
        for other, before in enumerate(earlier):
            if before.external == port.external:
                refuse(f"{here}.external", port.external, f"must differ from ports[{other}].external")
        if port.internal == 0:
            refuse(f"{here}.internal", port.internal, "must be 1 to 65535")
