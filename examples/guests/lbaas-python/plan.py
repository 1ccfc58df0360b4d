"""Compares what is wished with what is there: one load balancer's resources at a time.

Pure: the same resources, in whatever order, give the same plan.
"""

from dataclasses import dataclass, field, replace

from wit_world.exports.reconciliation import Desired
from wit_world.imports.types import Kind, Object, ObjectRef, Spec, State

from desired import SPEC_OF, kind_of, port_specs, spec_key


@dataclass
class LoadBalancerPlan:
    """What to do for one load balancer; nothing at all while some of it is on its way (`progressing`)."""

    create: list[Spec] = field(default_factory=list)
    destroy: list[Object] = field(default_factory=list)
    progressing: list[ObjectRef] = field(default_factory=list)


def ref(found: Object) -> ObjectRef:
    return ObjectRef(kind_of(found.spec), found.identifier)


def ref_key(found: ObjectRef):
    return (found.kind.value, found.identifier.encode())


def destroy_key(found: Object):
    """Children first; within a kind as specs, then by identifier."""
    return (-kind_of(found.spec).value, spec_key(found.spec), found.identifier.encode())


def parent(found: Object):
    """The identifier that a resource refers to, and the kind of that."""
    value = found.spec.value
    return {
        Kind.BACKEND: lambda: (None, value.load_balancer),
        Kind.FRONTEND: lambda: (Kind.BACKEND, value.default_backend),
        Kind.BIND: lambda: (Kind.FRONTEND, value.frontend),
        Kind.SERVER: lambda: (Kind.BACKEND, value.backend),
    }[kind_of(found.spec)]()


def own(load_balancer: str, listed: list[Object]) -> list[Object]:
    """Backends and frontends of the load balancer, and the binds and servers of those."""

    def of(*kinds):
        return [found for found in listed if kind_of(found.spec) in kinds]

    heads = [found for found in of(Kind.BACKEND, Kind.FRONTEND) if found.spec.value.load_balancer == load_balancer]
    ids = {(kind_of(found.spec), found.identifier) for found in heads}
    return heads + [found for found in of(Kind.BIND, Kind.SERVER) if parent(found) in ids]


def plan(desired: Desired, load_balancer: str, existing: list[Object]) -> LoadBalancerPlan:
    """The plan for the own resources of one load balancer."""
    failed = [found for found in existing if found.state == State.FAILED]
    if failed:
        return LoadBalancerPlan(destroy=sorted(with_dependents(failed, existing), key=destroy_key))
    pending = [ref(found) for found in existing if found.state == State.PENDING]
    if pending:
        return LoadBalancerPlan(progressing=sorted(pending, key=ref_key))
    return compare(desired, load_balancer, existing)


def with_dependents(failed: list[Object], existing: list[Object]) -> list[Object]:
    """The failed ones, and all that refers to them, directly or not."""
    ids = {(kind_of(found.spec), found.identifier) for found in failed}
    # Binds refer to frontends, and those to backends: two steps reach everything.
    for _ in range(2):
        ids |= {(kind_of(found.spec), found.identifier) for found in existing if parent(found) in ids}
    return [found for found in existing if (kind_of(found.spec), found.identifier) in ids]


def compare(desired: Desired, load_balancer: str, existing: list[Object]) -> LoadBalancerPlan:
    found = {}
    for one in existing:
        found.setdefault(spec_key(one.spec), []).append(one)
    referrers = {}
    for one in existing:
        referrers[parent(one)] = referrers.get(parent(one), 0) + 1
    kept, create = set(), []

    def there(kind, wished):
        """The identifier of the resource that is as wished; None where it is to be created."""
        spec = SPEC_OF[kind](wished)
        same = found.get(spec_key(spec))
        if not same:
            create.append(spec)
            return None
        best = min(same, key=lambda one: (-referrers.get((kind, one.identifier), 0), one.identifier.encode()))
        kept.add((kind, best.identifier))
        return best.identifier

    for port in desired.ports:
        specs = port_specs(desired, load_balancer, port)
        backend = there(Kind.BACKEND, specs.backend)
        if backend is None:
            continue  # What refers to it waits until it has an identifier.
        frontend = there(Kind.FRONTEND, replace(specs.frontend, default_backend=backend))
        for bind in specs.binds if frontend is not None else []:
            there(Kind.BIND, replace(bind, frontend=frontend))
        for server in specs.servers:
            there(Kind.SERVER, replace(server, backend=backend))
    surplus = [one for one in existing if (kind_of(one.spec), one.identifier) not in kept]
    return LoadBalancerPlan(create=sorted(create, key=spec_key), destroy=sorted(surplus, key=destroy_key))
