"""The guest: answers its world's calls, and is the only module that asks the host anything.

    desired.py (what is wished) -> plan.py (what differs) -> app.py (asks, acts, waits)
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.reconciliation import (
    AddressPorts,
    Error_Api,
    Error_Failed,
    Error_NotDestroyable,
    Error_Progressing,
    Error_TimedOut,
    Plan,
    Report,
)
from wit_world.imports import api, clock, log, random
from wit_world.imports.types import Kind, State

import settings
from desired import address, address_key, check, kind_of, spec_key, spelled, tag
from plan import destroy_key, own, plan, ref, ref_key

# An answer that is for the whole call: nothing else would be answered either.
WHOLE_CALL = (api.Error_RateLimited, api.Error_Unauthorized, api.Error_AccessDenied)

READY = (State.OK, State.UPDATING)


class Lifecycle(exports.Lifecycle):
    """Takes the settings; nothing else is kept between calls."""

    def init(self, config):
        try:
            settings.set_from(config)
        except ValueError as error:
            raise Err(str(error)) from None

    def snapshot(self):
        # As `lbaas@1` writes it: an operator may change from one to the other and back.
        return '{"format":1,"guest":"lbaas","version":1}'

    def restore(self, snapshot):
        found = json.loads(snapshot)
        if not isinstance(found, dict) or found.get("format") != 1:
            raise Err(f"snapshot: was {snapshot}, must be of format 1")


class Reconciliation(exports.Reconciliation):
    def reconcile_check(self, desired):
        listed = look(desired)
        plans = [plan(desired, one, own(one, listed)) for one in desired.load_balancers]
        progressing = sorted((found for one in plans for found in one.progressing), key=ref_key)
        if progressing:
            raise Err(Error_Progressing(progressing))
        return Plan(
            sorted((spec for one in plans for spec in one.create), key=spec_key),
            sorted((found for one in plans for found in one.destroy), key=destroy_key),
        )

    def reconcile(self, desired):
        check(desired)
        ask_load_balancers(desired)
        return Reconcile(desired).run()

    def status(self, desired):
        listed = look(desired)
        common = None
        for load_balancer in desired.load_balancers:
            pairs = {
                (address_key(bind.address), spelled(bind.address), bind.port) for bind in binds(own(load_balancer, listed))
            }
            common = pairs if common is None else common & pairs
        ports = {}
        for key, text, port in sorted(common or set()):
            ports.setdefault(text, []).append(port)
        return [AddressPorts(text, found) for text, found in ports.items()]


def binds(existing):
    for found in existing:
        is_bind = kind_of(found.spec) == Kind.BIND
        if is_bind and found.state in READY and address(found.spec.value.address):
            yield found.spec.value


def look(desired):
    """Checks the input, then lists what is there."""
    check(desired)
    ask_load_balancers(desired)
    return list_tagged(desired)


def ask_load_balancers(desired):
    for load_balancer in desired.load_balancers:
        asked(lambda: api.load_balancer(load_balancer))


def list_tagged(desired):
    return asked(lambda: api.list_tagged(tag(desired)))


def asked(question):
    """An error of the Engine is an error of this call."""
    try:
        return question()
    except Err as error:
        raise Err(Error_Api(error.value)) from None


def say(level, message, **fields):
    log.emit(level, message, [log.Field(key, str(value)) for key, value in fields.items()])


class Reconcile:
    """One call: rounds of list, destroy, create and wait, until nothing is left to do.

    A load balancer is open until it is true or an error closes it; one's trouble does not stop the others.
    """

    def __init__(self, desired):
        self.desired = desired
        self.open = list(desired.load_balancers)
        self.errors = {}  # by load balancer: the error's case, and its refs or the Engine's error
        self.report = Report(0, 0, 0)
        self.destroyed = set()
        self.touched = {}

    def run(self):
        while self.open:
            if self.report.rounds == settings.get("max_rounds"):
                for one in self.open:
                    self.errors[one] = (Error_TimedOut, self.touched.get(one, []))
                break
            self.round()
        self.raise_first()
        return self.report

    def round(self):
        self.report.rounds += 1
        listed = list_tagged(self.desired)
        plans = {one: plan(self.desired, one, own(one, listed)) for one in self.open}
        self.touched = {}
        say(
            log.Level.INFO,
            "round",
            create=sum(len(one.create) for one in plans.values()),
            destroy=sum(len(one.destroy) for one in plans.values()),
        )
        self.open = [one for one in self.open if plans[one] != type(plans[one])()]
        if any(plans[one].destroy for one in self.open):
            self.destroy({one: plans[one].destroy for one in self.open})
        waiting = {}
        for one in self.open:
            for found in plans[one].progressing:
                waiting[ref_key(found)] = (one, found, False)
        # A new resource may clash with an old one: creations wait until nothing is left to destroy.
        self.create({one: plans[one].create for one in self.open if not plans[one].destroy}, waiting)
        self.wait(waiting)

    def close(self, load_balancer, case, value):
        self.errors.setdefault(load_balancer, (case, value))
        self.open = [one for one in self.open if one != load_balancer]

    def destroy(self, left):
        """In passes: conflicts go away when what refers to a resource is gone."""
        left = {one: sorted(found, key=destroy_key) for one, found in left.items()}
        for one, objects in left.items():
            self.touched[one] = sorted((ref(found) for found in objects), key=ref_key)
        progress = True
        while progress and any(left.values()):
            progress = False
            for kind in reversed(Kind):
                objects = [(one, found) for one in left for found in left[one] if kind_of(found.spec) == kind]
                objects.sort(key=lambda entry: destroy_key(entry[1]))
                if not objects:
                    continue
                answers = api.destroy([ref(found) for _, found in objects])
                for (one, found), answer in zip(objects, answers):
                    if not isinstance(answer, Err) or isinstance(answer.value, api.Error_NotFound):
                        progress = True
                        left[one].remove(found)
                        self.destroyed.add(ref_key(ref(found)))
                self.report.destroyed = len(self.destroyed)
                raise_whole_call(answers)
        for one, objects in left.items():
            if objects:
                self.close(one, Error_NotDestroyable, [ref(found) for found in objects])

    def create(self, specs, waiting):
        entries = sorted(
            ((spec, one) for one, found in specs.items() for spec in found),
            key=lambda entry: spec_key(entry[0]),
        )
        if not entries:
            return
        answers = api.create([spec for spec, _ in entries], [tag(self.desired)])
        created = [answer for answer in answers if not isinstance(answer, Err)]
        self.report.created += len(created)
        raise_whole_call(answers)
        failed = set()
        for (spec, one), answer in zip(entries, answers):
            if isinstance(answer, Err):
                say(log.Level.WARN, "could not create", name=spec.value.name, error=answer.value)
                failed.add(one)
                self.close(one, Error_Api, answer.value)
        for (_, one), answer in zip(entries, answers):
            if not isinstance(answer, Err):
                found = ref(answer.value)
                self.touched.setdefault(one, []).append(found)
                if one not in failed:
                    waiting[ref_key(found)] = (one, found, True)

    def wait(self, waiting):
        """Looks at what is not ready yet, with pauses that grow."""
        for looks in range(self.desired.backoff_steps):
            if not waiting:
                return
            if looks:
                pause(looks - 1)
            entries = [waiting[key] for key in sorted(waiting)]
            answers = api.get([found for _, found, _ in entries])
            raise_whole_call(answers)
            failed = {}
            for (one, found, created), answer in zip(entries, answers):
                state = State.FAILED if isinstance(answer, Err) else answer.value.state
                if state in READY:
                    del waiting[ref_key(found)]
                elif state == State.FAILED:
                    failed.setdefault(one, []).append((found, created))
            for one, objects in failed.items():
                for key in [key for key, entry in waiting.items() if entry[0] == one]:
                    del waiting[key]
                # What this call created and failed is seen, and replaced, in the next round.
                if not all(created for _, created in objects):
                    self.close(one, Error_Failed, [found for found, _ in objects])
        for one in list(self.open):
            left = [found for owner, found, _ in (waiting[key] for key in sorted(waiting)) if owner == one]
            if left:
                self.close(one, Error_TimedOut, left)

    def raise_first(self):
        """The first load balancer decides the case; the refs are those of all that have it."""
        errors = [self.errors[one] for one in self.desired.load_balancers if one in self.errors]
        if not errors:
            return
        case, value = errors[0]
        if case is not Error_Api:
            value = sorted((found for other, refs in errors if other is case for found in refs), key=ref_key)
        say(log.Level.ERROR, "reconcile failed", error=case.__name__)
        raise Err(case(value))


def raise_whole_call(answers):
    for answer in answers:
        if isinstance(answer, Err) and isinstance(answer.value, WHOLE_CALL):
            raise Err(Error_Api(answer.value))


def pause(n):
    """Longer each time, and more by chance, so that many guests do not look at once."""
    base, longest = settings.get("backoff_initial_ms"), settings.get("backoff_max_ms")
    for _ in range(n):
        base = min(base * settings.get("backoff_factor_percent") // 100, longest)
    extra = base * settings.get("backoff_jitter_percent") // 100
    by_chance = extra * random.next_u64() >> 64 if settings.get("backoff_jitter_percent") else 0
    clock.sleep_ms(min(base + by_chance, longest))
