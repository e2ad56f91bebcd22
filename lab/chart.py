"""``make chart``: render deploy/helm/keyfold with Helm, check the objects, and write them to deploy/helm/rendered.

tests/test_rendered_chart.py reads those files, so that it needs neither Helm nor Go. It compares their digest with the
chart: a changed chart without ``make chart`` fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[1] / "deploy" / "helm" / "keyfold"
RENDERED = FOLDER.with_name("rendered")
DIGEST = RENDERED / "digest.txt"
RENDERED_AS = "1.29.0"  # the version of Kubernetes that the chart is rendered for
KUBERNETES = ("1.29", "1.37")  # versions whose schemas the objects are checked by
CASES: Mapping[str, Sequence[str]] = {
    "as-it-comes": [],
    "one-of-each": ["serve.replicas=1", "worker.replicas=1"],
    "with-an-ingress": ["serve.replicas=3", "ingress.enabled=true", "ingress.className=nginx"],
    "another-spark-and-a-bucket": [
        "spark.enabled=false",
        "warehouse.url=s3://bucket/prefix",
        "warehouse.credentials.AWS_ACCESS_KEY_ID=aws-access-key-id",
        "serviceAccountName=keyfold",
    ],
    "an-identity-provider": [
        "settings.KEYFOLD_OIDC_ISSUER=https://login.example",
        "settings.KEYFOLD_OIDC_AUDIENCE=keyfold",
        'settings.KEYFOLD_OIDC_GRANTS=[{"role": "read"\\, "on": ["*"]}]',
        "secretSettings.KEYFOLD_OIDC_CLIENT_SECRET=oidc-client-secret",
        "warehouse.storageClass=nfs",
    ],
}


def digest() -> str:
    """Return the digest of the chart's files and of the cases, without the charts that it depends on."""
    cases = json.dumps({"cases": {name: [*values] for name, values in CASES.items()}, "as": RENDERED_AS})
    total = hashlib.sha256(cases.encode())
    for path in sorted(FOLDER.rglob("*")):
        name = path.relative_to(FOLDER).as_posix()
        if path.is_file() and not name.startswith("charts/") and name != "Chart.lock":
            total.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def renderable(folder: Path) -> Path:
    """Return a copy of the chart with an empty one in place of PostgreSQL's, which Helm wants to be there."""
    copy = folder / "keyfold"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("charts", "Chart.lock"))
    [dependency] = yaml.safe_load((copy / "Chart.yaml").read_text())["dependencies"]
    stub = copy / "charts" / dependency["name"]
    stub.mkdir(parents=True)
    version = dependency["version"].replace("x", "0")
    (stub / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {dependency['name']}, version: {version}}}\n")
    return copy


def render(helm: str, validate: str) -> None:
    """Write each case. Raise ``CalledProcessError`` if Helm or Kubernetes' schemas find a fault."""
    with tempfile.TemporaryDirectory() as folder:
        chart = renderable(Path(folder))
        subprocess.run([helm, "lint", "--strict", chart], check=True)
        RENDERED.mkdir(exist_ok=True)
        for case, values in CASES.items():
            given = [word for value in values for word in ("--set", value)]
            words = [helm, "template", "shop", chart, "--kube-version", RENDERED_AS, *given]
            file = RENDERED / f"{case}.yaml"
            file.write_text(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            for version in KUBERNETES:
                subprocess.run([validate, "--strict", "--kubernetes-version", version, file], check=True)
    DIGEST.write_text(f"{digest()}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helm", required=True)
    parser.add_argument("--validate", required=True)
    arguments = parser.parse_args()
    render(arguments.helm, arguments.validate)
