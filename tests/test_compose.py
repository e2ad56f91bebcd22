"""deploy/compose.yaml against this version: settings, commands, routes, and what docs/deployment.md asks of Spark."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from app.api.middleware.auth import OPEN_PATHS
from app.cli.program import program_for
from app.settings import Settings
from tests import cluster

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = sorted(name for name, one in SERVICES.items() if one["image"] == "keyfold")
SPARK = sorted(name for name, one in SERVICES.items() if one["image"] == "keyfold-spark")
CADDY = (DEPLOY / "Caddyfile").read_text()
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()
COMMANDS: Any = typer.main.get_command(program_for([]))


def filled(text: str) -> str:
    """With a word where a variable stands."""
    return re.sub(r"\$\{\w+[^}]*\}", "secret", text)


def settings_of(name: str) -> Settings:
    """The settings of a service, beside those of the image."""
    image = dict(re.findall(r"(KEYFOLD_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    given = image | {key: filled(value) for key, value in SERVICES[name]["environment"].items()}
    named = {field.alias or f"KEYFOLD_{one.upper()}": one for one, field in Settings.model_fields.items()}
    return Settings(**{named[key]: value for key, value in given.items()})


@pytest.mark.parametrize("name", OWN)
def test_settings_and_commands_are_those_of_this_version(name: str) -> None:
    chosen = settings_of(name)
    command, *arguments = SERVICES[name]["command"]
    COMMANDS.commands[command].make_context(command, arguments)
    assert chosen.catalog_url.startswith("postgresql+psycopg://")
    assert chosen.warehouse_root == "/warehouse"
    assert "warehouse:/warehouse" in SERVICES[name]["volumes"]
    assert "/warehouse" in (ROOT / "Dockerfile").read_text().partition("USER")[0], "it belongs to the image's user"


def test_two_services_answer_and_two_workers_merge() -> None:
    by_command = {name: SERVICES[name]["command"][0] for name in OWN}
    serving = [name for name, command in by_command.items() if command == "serve"]
    merging = [name for name, command in by_command.items() if command == "worker"]
    assert (len(serving), len(merging)) == (2, 2)
    assert [settings_of(name).workers for name in serving] == [0, 0]
    assert all(SERVICES[name]["healthcheck"] == {"disable": True} for name in merging), "it has no port"
    for name in merging:
        remote = settings_of(name).spark_remote
        assert remote is not None
        assert remote.get_secret_value() == "sc://localhost:15002/;token=secret"
        assert SERVICES[name]["network_mode"] == "service:spark-connect", "a token goes to localhost only"


def test_everything_waits_for_the_migration() -> None:
    for name in set(OWN) - {"migrate"}:
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"


def test_health_is_asked_of_routes_that_need_no_token() -> None:
    asked = re.findall(r"127\.0\.0\.1:(\d+)(/\w+)", str([SERVICES[name].get("healthcheck") for name in OWN]))
    proxied = re.findall(r"health_uri (\S+)", CADDY)
    assert {path for _, path in asked} | {*proxied} <= OPEN_PATHS
    assert {int(port) for port, _ in asked} == {settings_of("api-1").port}


def test_the_proxy_calls_the_services_and_is_trusted_by_them() -> None:
    [upstreams] = re.findall(r"reverse_proxy (.+) \{", CADDY)
    assert upstreams.split() == [f"{name}:{settings_of(name).port}" for name in OWN if name.startswith("api")]
    [front] = COMPOSE["networks"]["front"]["ipam"]["config"]
    for name in ("api-1", "api-2"):
        assert settings_of(name).trusted_proxies == str(ipaddress.ip_network(front["subnet"]))
        assert settings_of(name).asks_for_tokens
    ports = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert ports.keys() == {"proxy", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in ports["grafana"]), "only this machine reaches it"
    assert [name for name, one in SERVICES.items() if "front" in one.get("networks", ())] == ["api-1", "api-2", "proxy"]


def test_spark_is_of_the_version_and_set_up_as_the_page_of_deployment_says() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert {SERVICES[name]["build"]["target"] for name in SPARK} == {"spark"}
    assert "AS spark" in dockerfile
    assert "site-packages/pyspark /opt/spark" in dockerfile, "the scripts are those of the wheel"
    started = " ".join(" ".join(SERVICES[name]["command"]) for name in SPARK)
    own = Path(cluster.__file__).read_text()
    for main in re.findall(r"org\.apache\.spark\.(\S+)", started):
        assert f'"{main}"' in own, "as the tests start it"
    for script in re.findall(r"/opt/spark/(\S+?\w+/[\w.-]+)", started):
        assert (cluster.SPARK / script).is_file()
    section = DEPLOYMENT.partition("## A standalone cluster")[2]
    for option in re.findall(r"--conf=(spark\.\S+?)=", started):
        assert option in section or option in cluster.SERVER_PROPERTIES
    assert "spark.scheduler.mode=FAIR" in started
    assert (DEPLOY / "pools.xml").read_text().strip() in section


def test_the_commands_of_the_page_of_deployment_are_understood() -> None:
    section = DEPLOYMENT.partition("## The compose file")[2].partition("\n## ")[0]
    ran = re.findall(r"docker compose run --rm (?:--volume \S+ )?(\S+) ([^#\n]+)", section)
    assert len(ran) == 4
    for name, words in ran:
        group, arguments = COMMANDS, words.partition(">")[0].split()
        assert name in OWN
        while arguments and arguments[0] in getattr(group, "commands", {}):
            group = group.commands[arguments.pop(0)]
        group.make_context("keyfold", arguments)
    for names in re.findall(r"docker compose (?:stop|up --detach --force-recreate) ([\w -]+)", section):
        assert {*names.split()} <= {*OWN}


def test_prometheus_scrapes_the_services_and_grafana_shows_the_dashboard() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [job] = scraped["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:{settings_of(name).port}" for name in ("api-1", "api-2")]
    assert job["job_name"] == "keyfold", "as the alerts name it"
    [token] = SERVICES["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == token["target"]
    mounted = dict(volume.split(":")[:2] for name in ("prometheus", "grafana") for volume in SERVICES[name]["volumes"])
    files = {path: inside for path, inside in mounted.items() if path.startswith(".")}
    assert [path for path in files if not (DEPLOY / path).is_file()] == []
    assert {files["../docs/alerts.yml"]} == {*scraped["rule_files"]}
    [provider] = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"]
    assert Path(files["../docs/grafana-dashboard.json"]).parent == Path(provider["options"]["path"])
    [source] = yaml.safe_load((DEPLOY / "grafana" / "datasources.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_every_part_has_a_memory_limit_and_the_page_says_their_sum() -> None:
    assert [name for name, one in SERVICES.items() if "mem_limit" not in one] == []
    sizes = {"m": 1, "g": 1024}
    always = [service for service in SERVICES.values() if "profiles" not in service]
    each = [int(one["mem_limit"][:-1]) * sizes[one["mem_limit"][-1]] for one in always]
    total = sum(size * one.get("deploy", {}).get("replicas", 1) for size, one in zip(each, always, strict=True))
    said = re.search(r"limit: ([\d.]+)\s+GiB in all", DEPLOYMENT)
    assert said is not None
    assert float(said[1]) == round(total / 1024, 1)


def test_every_part_names_only_parts_that_exist() -> None:
    for one in SERVICES.values():
        assert {*one.get("depends_on", ())} <= {*SERVICES}
        assert {*one.get("networks", ())} <= {*COMPOSE["networks"]}
        named = {volume.partition(":")[0] for volume in one.get("volumes", ())}
        assert {volume for volume in named if not volume.startswith(".")} <= {*COMPOSE["volumes"]}
        assert {secret["source"] for secret in one.get("secrets", ())} <= {*COMPOSE["secrets"]}
        assert {config["source"] for config in one.get("configs", ())} <= {*COMPOSE["configs"]}


def test_secrets_are_made_once_for_their_owner_alone_and_are_all_that_the_file_asks_for(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "secrets.sh", tmp_path)
    run = subprocess.run([str(tmp_path / "secrets.sh")], capture_output=True, text=True, check=True)
    made = dict(line.split("=") for line in (tmp_path / ".env").read_text().splitlines())
    asked = re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text())
    assert {*asked} == {*made}
    spark = dict(line.split() for line in (tmp_path / "spark-defaults.conf").read_text().splitlines())
    assert spark["spark.connect.authenticate.token"] == made["SPARK_TOKEN"]
    assert spark["spark.authenticate"] == "true"
    secrets = {*made.values(), spark["spark.authenticate.secret"]}
    assert {len(secret) for secret in secrets} == {64}
    assert len(secrets) == 4
    assert not any(secret in run.stdout + run.stderr for secret in secrets)
    assert {os.stat(tmp_path / name).st_mode & 0o777 for name in (".env", "spark-defaults.conf")} == {0o600}
    again = subprocess.run([str(tmp_path / "secrets.sh")], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert made["SPARK_TOKEN"] in (tmp_path / ".env").read_text()
