"""Drives `trueup sim compute` with Google's own client, over REST: the judge of the wire.

Usage: official_client.py http://ADDR
"""

import sys
import urllib.request
import uuid

from google.api_core import exceptions
from google.auth import credentials as auth
from google.cloud import compute_v1
from google.cloud.compute_v1.services.network_endpoint_groups.transports.rest import NetworkEndpointGroupsRestTransport
from google.cloud.compute_v1.services.zone_operations.transports.rest import ZoneOperationsRestTransport

PROJECT, ZONE, NEG = "demo", "europe-west1-b", "web"
SUBNETWORK = "projects/demo/regions/europe-west1/subnetworks/s1"


class FixedToken(auth.Credentials):
    """A token that needs no fetching."""

    def __init__(self, token):
        super().__init__()
        self.token = token

    def refresh(self, request):
        pass

    @property
    def expired(self):
        return False

    @property
    def valid(self):
        return True


def check(what, was, expected):
    assert was == expected, f"{what}: was {was!r}, expected {expected!r}"
    print(f"ok: {what}")


def refused(what, kind, message, call):
    try:
        call()
    except kind as error:
        assert message in str(error), f"{what}: {error}"
        print(f"ok: {what}")
        return
    raise AssertionError(f"{what}: was not refused")


def endpoint(number, **more):
    return compute_v1.NetworkEndpoint(
        instance=f"vm-{number % 7}", ip_address=f"10.0.{number // 256}.{number % 256}", port=8080, **more
    )


def main(url, token):
    host = url.removeprefix("http://")
    given = dict(credentials=FixedToken(token), host=host, url_scheme="http")
    transport = NetworkEndpointGroupsRestTransport(**given)
    # The extended operation asks for its state through a client of its own, made with the same transport.
    operations = compute_v1.ZoneOperationsClient(transport=ZoneOperationsRestTransport(**given))
    transport._extended_operations_services["zone_operations"] = operations
    negs = compute_v1.NetworkEndpointGroupsClient(transport=transport)
    place = dict(project=PROJECT, zone=ZONE)
    neg = dict(place, network_endpoint_group=NEG)

    def refuse_get():
        negs.get(**neg)

    refused("get of nothing", exceptions.NotFound, f"'projects/{PROJECT}/zones/{ZONE}/networkEndpointGroups/{NEG}'", refuse_get)

    wish = compute_v1.NetworkEndpointGroup(name=NEG, network_endpoint_type="GCE_VM_IP_PORT", subnetwork=SUBNETWORK)
    inserting = negs.insert(network_endpoint_group_resource=wish, **place)
    inserting.result(timeout=60)
    check("insert is done", inserting.done(), True)
    there = negs.get(**neg)
    check("its kind", there.kind, "compute#networkEndpointGroup")
    check("its subnetwork", there.subnetwork, f"https://www.googleapis.com/compute/v1/{SUBNETWORK}")
    check("its size", there.size, 0)
    check("the list of NEGs", [one.name for one in negs.list(**place)], [NEG])
    refused(
        "insert again", exceptions.Conflict, "already exists", lambda: negs.insert(network_endpoint_group_resource=wish, **place)
    )

    def endpoints():
        skip = compute_v1.NetworkEndpointGroupsListEndpointsRequest(health_status="SKIP")
        request = compute_v1.ListNetworkEndpointsNetworkEndpointGroupsRequest(
            network_endpoint_groups_list_endpoints_request_resource=skip, max_results=200, **neg
        )
        return [item.network_endpoint for item in negs.list_network_endpoints(request=request)]

    check("no endpoints", endpoints(), [])

    def attach(sent, request_id=None):
        body = compute_v1.NetworkEndpointGroupsAttachEndpointsRequest(network_endpoints=sent)
        request = compute_v1.AttachNetworkEndpointsNetworkEndpointGroupRequest(
            network_endpoint_groups_attach_endpoints_request_resource=body, request_id=request_id, **neg
        )
        return negs.attach_network_endpoints(request=request)

    def detach(sent):
        body = compute_v1.NetworkEndpointGroupsDetachEndpointsRequest(network_endpoints=sent)
        return negs.detach_network_endpoints(
            network_endpoint_groups_detach_endpoints_request_resource=body, **neg
        )

    many = [endpoint(number) for number in range(450)]
    request_id = str(uuid.uuid4())
    first = attach(many, request_id)
    again = attach(many, request_id)
    check("the same request is the same operation", first.name, again.name)
    first.result(timeout=60)
    found = endpoints()
    check("three pages", len(found), 450)
    check("an endpoint as it was sent", sorted(map(str, found)), sorted(map(str, many)))

    v6 = endpoint(1000, ipv6_address="2001:db8::10")
    attach([v6]).result(timeout=60)
    check("a dual-stack endpoint", endpoints()[-1].ipv6_address, "2001:db8::10")

    clash = attach([endpoint(0, ipv6_address="2001:db8::1")])
    refused("another stack of one that is there", exceptions.GoogleAPICallError, "same VM, port and address", lambda: clash.result(timeout=60))
    missing = detach([endpoint(2000)])
    refused("detach of nothing", exceptions.GoogleAPICallError, "was not found", lambda: missing.result(timeout=60))
    detach(many).result(timeout=60)
    check("what is left", [one.ip_address for one in endpoints()], ["10.0.3.232"])
    refused("too many", exceptions.BadRequest, "the limit is 500", lambda: attach([endpoint(n) for n in range(501)]))
    refused("none", exceptions.BadRequest, "networkEndpoints", lambda: attach([]))
    refused("port 0", exceptions.BadRequest, "1 to 65535", lambda: attach([compute_v1.NetworkEndpoint(ip_address="10.0.0.1", port=0)]))

    # By hand: `wait` and `get`, by name.
    waiting = detach([v6])
    done = operations.wait(operation=waiting.name, **place)
    check("wait", (done.status, done.progress, done.operation_type), (compute_v1.Operation.Status.DONE, 100, "detachNetworkEndpoints"))
    check("by number", operations.get(operation=str(done.id), **place).name, waiting.name)
    refused("an unknown operation", exceptions.NotFound, "operations/none", lambda: operations.get(operation="none", **place))

    def admin(method, path, body=None):
        request = urllib.request.Request(url + path, method=method, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    limited = b'{"status": 403, "reason": "rateLimitExceeded", "times": 1, "path": "*/networkEndpointGroups/*"}'
    admin("POST", "/faults", limited)
    refused("a rate limit", exceptions.Forbidden, "Forbidden", refuse_get)
    admin("DELETE", "/operations")
    refused("a forgotten operation", exceptions.NotFound, "was not found", lambda: operations.get(operation=done.name, **place))


main(*sys.argv[1:])
