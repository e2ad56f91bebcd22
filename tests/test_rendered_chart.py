"""deploy/helm/keyfold as Helm rendered it, against this version.

``make chart`` renders it again, and checks the objects by Kubernetes' schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from app.api.middleware.auth import OPEN_PATHS
from app.settings import Settings
from lab.chart import CASES, DIGEST, RENDERED, digest
from tests.test_helm_chart import COMMANDS, COMPOSE, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
SECRETS = {
    "database-url": "postgresql+psycopg://keyfold:password@keyfold-postgresql/keyfold",
    "spark-remote": "sc://spark.example:15002/;token=spark-token",
}
Objects = list[dict[str, Any]]


@pytest.fixture(params=CASES)
def objects(request: pytest.FixtureRequest) -> Objects:
    """Return the objects of a case."""
    return [one for one in yaml.safe_load_all((RENDERED / f"{request.param}.yaml").read_text()) if one]


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by their names."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the pod of each Deployment by its component."""
    found = of_kind(objects, "Deployment").values()
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"] for one in found}


def containers(objects: Objects) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each container with its pod's specification."""
    for pod in pods(objects).values():
        for one in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
            yield pod["spec"], one


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    """Return its variables as Kubernetes sets them, from a Secret whose values are the names of its keys."""
    known: dict[str, str] = {}
    for one in container["env"]:
        assert one["name"] not in known
        if "valueFrom" in one:
            reference = one["valueFrom"]["secretKeyRef"]
            assert reference["name"] == "keyfold"
            known[one["name"]] = SECRETS.get(reference["key"], reference["key"])
        else:
            known[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], one["value"])
    return known


def settings_of(container: dict[str, Any]) -> Settings:
    """Return the settings of a container with those of the image."""
    image = dict(re.findall(r"(KEYFOLD_\w+)=(\S+)", DOCKERFILE))
    given = image | {key: one for key, one in environment_of(container).items() if key.startswith("KEYFOLD_")}
    named = {field.alias or f"KEYFOLD_{one.upper()}": one for one, field in Settings.model_fields.items()}
    return Settings(**{named[key]: json.loads(one) if one[:1] == "[" else one for key, one in given.items()})


def test_commands_and_settings_are_those_of_this_version(objects: Objects) -> None:
    ran = []
    for _, one in containers(objects):
        if one["image"] != "keyfold:0.1.0":
            continue
        command, *arguments = one["args"]
        COMMANDS.commands[command].make_context(command, arguments)
        chosen = settings_of(one)
        assert chosen.catalog_url == SECRETS["database-url"]
        assert str(chosen.folder).startswith("/data/"), "a folder that the service makes, and closes to others"
        ran.append((command, chosen))
    assert [command for command, _ in ran] == ["migrate", "serve", "migrate", "worker"]
    by_command = dict(ran)
    assert by_command["serve"].workers == 0
    assert by_command["serve"].asks_for_tokens
    assert by_command["serve"].processes == 2
    assert len({one.warehouse_root for _, one in ran}) == 1


def test_a_token_of_spark_goes_to_localhost_only(objects: Objects) -> None:
    pod = pods(objects)["worker"]["spec"]
    remote = settings_of(pod["containers"][0]).spark_remote
    assert remote is not None
    servers = [container for container in pod["initContainers"] if container["name"] == "spark-connect"]
    if not servers:
        assert remote.get_secret_value() == SECRETS["spark-remote"]
        return
    assert remote.get_secret_value() == "sc://localhost:15002/;token=spark-token"
    [server] = servers
    assert server["restartPolicy"] == "Always", "it keeps running"
    asked = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "spark-token"}
    assert asked.items() <= environment_of(server).items()
    assert COMPOSE["spark-connect"]["environment"].items() <= environment_of(server).items()
    assert "--conf=spark.connect.grpc.binding.address=127.0.0.1" in server["command"]
    [folder] = [mount["mountPath"] for mount in server["volumeMounts"] if mount["name"] == "pools"]
    assert f"SPARK_CONF_DIR={folder}" in DOCKERFILE
    assert f"--conf=spark.scheduler.allocation.file={folder}/pools.xml" in server["command"]


def test_ports_and_probes_lead_to_the_service(objects: Objects) -> None:
    [serve] = pods(objects)["serve"]["spec"]["containers"]
    [port] = serve["ports"]
    assert port["containerPort"] == settings_of(serve).port
    for probe in ("readinessProbe", "livenessProbe"):
        assert serve[probe]["httpGet"]["port"] == port["name"]
        assert serve[probe]["httpGet"]["path"] in OPEN_PATHS
    [(name, service)] = of_kind(objects, "Service").items()
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [port["name"]]
    for ingress in of_kind(objects, "Ingress").values():
        [rule] = ingress["spec"]["rules"]
        [path] = rule["http"]["paths"]
        assert path["backend"]["service"] == {"name": name, "port": {"name": service["spec"]["ports"][0]["name"]}}
        assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]


def test_selectors_meet_the_labels_of_one_deployment(objects: Objects) -> None:
    labels = {component: pod["metadata"]["labels"] for component, pod in pods(objects).items()}
    for deployment in of_kind(objects, "Deployment").values():
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels[component].items()
    budgets = [one["spec"]["selector"]["matchLabels"] for one in of_kind(objects, "PodDisruptionBudget").values()]
    for selector in [*budgets, *(one["spec"]["selector"] for one in of_kind(objects, "Service").values())]:
        assert [name for name, own in labels.items() if selector.items() <= own.items()] == ["serve"]
    replicas = of_kind(objects, "Deployment")["shop"]["spec"]["replicas"]
    assert len(budgets) == (replicas > 1)
    for one in objects:
        named = {"name", "instance", "component", "version", "part-of", "managed-by"}
        assert {f"app.kubernetes.io/{name}" for name in named} <= {*one["metadata"]["labels"]}


def test_volumes_exist_and_are_mounted(objects: Objects) -> None:
    for pod in pods(objects).values():
        spec = pod["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounted = {
            mount["name"] for one in [*spec["initContainers"], *spec["containers"]] for mount in one["volumeMounts"]
        }
        assert mounted == {*volumes}
        for one in volumes.values():
            if "persistentVolumeClaim" in one:
                claim = of_kind(objects, "PersistentVolumeClaim")[one["persistentVolumeClaim"]["claimName"]]
                assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
            if "configMap" in one:
                assert "pools.xml" in of_kind(objects, "ConfigMap")[one["configMap"]["name"]]["data"]
    for _, one in containers(objects):
        root = next((mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] == "warehouse"), None)
        if root is not None and one["image"] == "keyfold:0.1.0":
            assert settings_of(one).warehouse_root.startswith(f"{root}/")


def test_containers_have_few_rights_and_the_memory_of_the_compose_file(objects: Objects) -> None:
    limits = {}
    for spec, one in containers(objects):
        assert spec["enableServiceLinks"] is False, "a Service called keyfold would set KEYFOLD_PORT"
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert f"--uid {spec['securityContext']['runAsUser']} " in DOCKERFILE
        own = one["securityContext"]
        assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert one["resources"]["requests"]["memory"] == one["resources"]["limits"]["memory"]
        limits[one["name"]] = one["resources"]["limits"]["memory"].removesuffix("i").lower()
    in_compose = {"serve": "api-1", "worker": "worker-1", "migrate": "migrate", "spark-connect": "spark-worker"}
    assert limits == {name: COMPOSE[in_compose[name]]["mem_limit"] for name in limits}


def test_no_secret_is_in_the_text(objects: Objects) -> None:
    assert of_kind(objects, "Secret") == {}
    for _, one in containers(objects):
        plain = {variable["name"] for variable in one["env"] if "value" in variable}
        secret = {name for name in plain if re.search("URL|TOKEN|SECRET|PASSWORD|ACCESS_KEY", name)}
        assert secret == set()
        remote = [
            variable["value"]
            for variable in one["env"]
            if variable["name"] == "KEYFOLD_SPARK_REMOTE" and "value" in variable
        ]
        assert all(value.endswith(";token=$(SPARK_TOKEN)") for value in remote)


def test_the_objects_are_those_of_this_chart() -> None:
    assert DIGEST.read_text().strip() == digest(), "the chart changed: run `make chart`, and commit what it writes"
    assert {path.stem for path in RENDERED.glob("*.yaml")} == {*CASES}
