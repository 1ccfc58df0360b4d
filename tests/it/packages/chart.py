"""Renders a chart with Helm's own engine: `chart.py CHART VALUES`, with JSON in and out, as release `trueup` in `trueup`."""

import json
import sys

import helm_python as helm

path, values = sys.argv[1], json.loads(sys.argv[2])
report = helm.lint(path, values, strict=True)
INFO = 1
faults = report["errors"] + [it["error"] for it in report["messages"] if it["severity"] > INFO]
with helm.Chart.load(path) as chart:
    files = chart.render(values, name="trueup", namespace="trueup")
    version = chart.metadata["appVersion"]
documents = [part.strip("\n") + "\n" for name in sorted(files) for part in ("\n" + files[name]).split("\n---\n")]
documents = [document for document in documents if document.strip()]
objects = [helm.values_from_yaml(document) for document in documents]
print(json.dumps({"faults": faults, "version": version, "text": "---\n".join(documents), "objects": objects}))
