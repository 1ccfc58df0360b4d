"""A guest that looks for ways out of its component, and says what it found."""

# There are no files where this runs: what is imported later, here by looking up a name, must be there already.
import encodings.idna  # noqa: F401
import json
import os
import random
import socket
import sys
import time

from wit_world import exports
from wit_world.exports.reconciliation import AddressPorts, Plan, Report


def tried(what):
    """What it gave, or that it was refused."""
    try:
        return what()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def slept(seconds):
    """How long that was, by the clock that never goes back, in milliseconds."""
    before = time.monotonic_ns()
    time.sleep(seconds)
    return (time.monotonic_ns() - before) // 1_000_000


def constants():
    """The same wherever and whenever it runs."""
    return {
        "environment": dict(os.environ),
        "arguments": sys.argv,
        "root": tried(lambda: os.listdir("/")),
        "file": tried(lambda: open("/etc/hostname").read()),
        "written": tried(lambda: open("/tmp/left-behind", "w").close()),
        "input": tried(lambda: sys.stdin.read()),
        "tcp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
        "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "resolved": tried(lambda: socket.getaddrinfo("localhost", 80)),
    }


def changing():
    """What the host's clock and chance decide."""
    return {
        "now": time.time_ns(),
        "bytes": tried(lambda: os.urandom(4).hex()),
        "number": tried(lambda: random.SystemRandom().getrandbits(16)),
        "seeded": random.getrandbits(32),
        "slept": tried(lambda: slept(0.02)),
    }


class Lifecycle(exports.Lifecycle):
    def init(self, config):
        pass

    def snapshot(self):
        return '{"format":1}'

    def restore(self, snapshot):
        pass


class Reconciliation(exports.Reconciliation):
    def reconcile_check(self, desired):
        return Plan([], [])

    def reconcile(self, desired):
        """For a run: what is printed goes to the log."""
        print("constants", json.dumps(constants()))
        print("changing", json.dumps(changing()))
        print("a line on the other output", file=sys.stderr)
        print("z" * 20_000)
        return Report(0, 0, 1)

    def status(self, desired):
        """For scenarios, whose clock and chance are known: what was found, a line each."""
        if desired.name_suffix == "looks":
            found = {**constants(), **changing()}
            return [AddressPorts(f"{name}: {json.dumps(value)}", []) for name, value in found.items()]
        if desired.name_suffix == "exits":
            sys.stdout.write("a line without an end")
            os._exit(3)
        return []
