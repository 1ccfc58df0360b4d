"""The settings, as `lifecycle.init` gives them once."""

import json

# Name to default, least and most. A resource that fails whenever it is created would be replaced for ever: `max_rounds`.
NUMBERS = {
    "backoff_factor_percent": (150, 100, 1_000),
    "backoff_initial_ms": (1_000, 1, 3_600_000),
    "backoff_jitter_percent": (150, 0, 1_000),
    "backoff_max_ms": (300_000, 1, 86_400_000),
    "max_rounds": (20, 1, 10_000),
}

_given = {}


def set_from(config):
    """Takes a JSON object; a `ValueError` says which setting is wrong, what it was and what it may be."""
    global _given
    given = json.loads(config)
    if not isinstance(given, dict):
        raise ValueError(f"config: was {config}, must be a JSON object")
    names = sorted(["failed_objects", *NUMBERS])
    for name in sorted(given):
        value = json.dumps(given[name], ensure_ascii=False, separators=(",", ":"))
        if name not in names:
            raise ValueError(f"{name}: was {value}, must not be set: the settings are {', '.join(names)}")
        if name == "failed_objects":
            # This guest resets nothing.
            if given[name] != "destroy":
                raise ValueError(f'{name}: was {value}, must be "destroy"')
            continue
        _, least, most = NUMBERS[name]
        if type(given[name]) is not int or not least <= given[name] <= most:
            raise ValueError(f"{name}: was {value}, must be a whole number from {least} to {most}")
    _given = given


def get(name):
    """One number."""
    return _given.get(name, NUMBERS[name][0])
