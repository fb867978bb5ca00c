"""Compose file, images and Kubernetes manifests: sound, hardened, and of one mind with the command line."""

import copy
import os
import re
import shlex
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from reliq.cli import main
from reliq.observability.histograms import HTTP, LATENESS, PROCESS, RECOVERY, WAIT
from reliq.observability.monitor_state import MonitorState
from reliq.observability.partition_metrics import PartitionCollector
from reliq.observability.prometheus import Exporter
from reliq.observability.worker_metrics import WorkerCollector
from reliq.transport.store import Store
from tests.integration.monitor.conftest import ROOT, program
from tests.support.ports import free_port
from tests.support.workers import eventually, process
from tools.site.reference import PAGES

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
ONCE = {"key", "spark"}
DOCKERFILES = [ROOT / "api" / "Dockerfile", ROOT / "monitor" / "Dockerfile", ROOT / "deploy" / "spark.Dockerfile"]
MANIFESTS = [
    manifest
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
DEPLOYMENTS = [one for one in MANIFESTS if one["kind"] == "Deployment"]


def parses(arguments):
    return main._parser().parse_args([str(argument) for argument in arguments])


def dockerfile(service):
    return (ROOT / service["build"]["dockerfile"]).read_text() if "build" in service else ""


# --- compose ---------------------------------------------------------------------------------------------------------


def compose_config(**environment):
    command = [program("docker-compose"), "--env-file", ".env.example", "--profile", "spark", "config"]
    given = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_compose_accepts_the_file():
    done = compose_config(REDIS_PASSWORD="secret", GRAFANA_PASSWORD="secret")
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)


@pytest.mark.parametrize("name", ["REDIS_PASSWORD", "GRAFANA_PASSWORD"])
def test_compose_starts_nothing_without_a_password_of_ones_own(name):
    passwords = {"REDIS_PASSWORD": "secret", "GRAFANA_PASSWORD": "secret"}
    del passwords[name]
    done = compose_config(**passwords)
    assert done.returncode != 0
    assert name in done.stderr


def test_every_password_is_empty_in_the_example_and_demanded_by_the_file():
    given = dict(re.findall(r"^(\w+PASSWORD)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert set(given.values()) == {""}
    uses = re.findall(r"\$\{(\w+PASSWORD)(.{2})", (ROOT / "docker-compose.yml").read_text())
    assert {name for name, _ in uses} == set(given)
    assert {how for _, how in uses} == {":?"}


def test_everything_is_there_and_spark_only_when_it_is_asked_for():
    spark = {"spark-master", "spark-worker", "spark"}
    assert set(SERVICES) == {"redis", "key", "api", "worker", "monitor", "prometheus", "grafana"} | spark
    assert {name for name, service in SERVICES.items() if "profiles" in service} == spark


def test_every_variable_has_its_line_in_the_example():
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    given = set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert used == given


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_cannot_write_its_files_nor_gain_rights(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("user", "root") != "root" or re.search(r"^USER 10001:10001$", dockerfile(service), re.MULTILINE)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_of_a_pinned_image_and_tells_its_health(name):
    service = SERVICES[name]
    digest = "" if "build" in service else "@sha256:[0-9a-f]{64}"
    assert re.search(rf":v?\d+\.\d+\.\d+(-[\w.]+)?{digest}$", service["image"])
    if name in ONCE:
        assert service["healthcheck"] == {"disable": True}
        assert service["restart"] == "no"
    else:
        assert "test" in service.get("healthcheck", ()) or "\nHEALTHCHECK " in dockerfile(service)


def test_ports_are_open_on_this_machine_only():
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_redis_keeps_what_it_has_and_never_evicts():
    command = SERVICES["redis"]["command"]
    pairs = dict(zip(command[1::2], command[2::2], strict=True))
    assert (pairs["--appendonly"], pairs["--maxmemory-policy"]) == ("yes", "noeviction")
    assert "redis-data:/data" in SERVICES["redis"]["volumes"]


def test_there_are_two_workers_and_their_command_is_one_of_reliq():
    worker = SERVICES["worker"]
    assert worker["deploy"]["replicas"] == "${RELIQ_WORKERS:-2}"
    options = parses([part.replace("${RELIQ_APP:-tasks:app}", "tasks:app") for part in worker["command"]])
    assert (options.app, options.monitor, options.metrics_port, options.log_json) == ("tasks:app", False, 9108, True)


def test_the_keys_that_are_made_are_commands_of_reliq():
    lines = re.findall(r"reliq (keys create .*?) >", SERVICES["key"]["command"][0])
    assert [parses(shlex.split(line)).scope for line in lines] == [
        ["metrics"],
        ["enqueue", "consume", "operate", "topics"],
    ]


def test_the_workers_application_has_its_handler():
    code = "import tasks; print([one.queue for one in tasks.app.handlers])"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'deploy' / 'compose'}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "['orders']\n"


def test_prometheus_scrapes_services_where_they_answer():
    jobs = yaml.safe_load((ROOT / "monitor" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    (monitor,), (api,), (worker,) = (job.get("static_configs") or job["dns_sd_configs"] for job in jobs)
    assert (monitor["names"], monitor["port"]) == (["monitor"], 9108)
    assert 'CMD ["monitor", "--metrics-port", "9108"' in dockerfile(SERVICES["monitor"])
    assert api["targets"] == ["api:8080"]
    assert "EXPOSE 8080" in dockerfile(SERVICES["api"])
    assert (worker["names"], worker["port"]) == (["worker"], 9108)


def test_grafana_finds_its_data_source_and_dashboards_where_they_are_mounted():
    mounts = dict(volume.split(":")[:2][::-1] for volume in SERVICES["grafana"]["volumes"])
    folder = ROOT / mounts["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "reliq.yml").read_text())["providers"]
    (source,) = yaml.safe_load((folder / "datasources" / "reliq.yml").read_text())["datasources"]
    assert (ROOT / mounts[provider["options"]["path"]] / "reliq-overview.json").is_file()
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/reliq-overview.json"


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_image_is_built_in_two_stages_from_pinned_ones_and_runs_as_nobody_special(path):
    text = path.read_text()
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(stages) == 2
    assert all(re.search(r":\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$", stage) for stage in stages)
    last = text.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in last
    assert not re.search(r"^(COPY|ADD) (?!--from=build)", last, re.MULTILINE)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_an_image_copies_is_there_and_not_ignored(path):
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text(), re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()
            assert source.split("/")[0] in allowed


@pytest.mark.parametrize("path", DOCKERFILES[:2], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_images_command_is_one_of_reliq(path):
    command = re.findall(r"^CMD \[(.+)\]$", path.read_text(), re.MULTILINE)[-1]
    assert parses(re.findall(r'"([^"]+)"', command)).log_json


@pytest.mark.parametrize(("path", "port"), [(DOCKERFILES[0], "8080"), (DOCKERFILES[1], "9108")], ids=["api", "monitor"])
def test_an_images_health_check_tells_whether_its_command_runs(path, port, url):
    def words(before):
        (found,) = re.findall(rf"^{before}CMD \[(.+)\]$", path.read_text(), re.MULTILINE)
        here = {port: str(free), "0.0.0.0": "127.0.0.1"}
        return [here.get(word, word.replace(port, str(free))) for word in re.findall(r'"([^"]+)"', found)]

    def healthy():
        return (
            subprocess.run([sys.executable, *check[1:]], capture_output=True, check=False, timeout=30).returncode == 0
        )

    free = free_port()
    check = words(" +")
    assert check[0] == "python"
    own_port = ["--port", str(free)] if port == "8080" else []
    assert not healthy()
    with process(*words(""), *own_port, "--url", url):
        eventually(healthy, timeout=60)
    assert not healthy()


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCKERFILES[:2], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_images_build_steps_make_a_reliq_that_runs(path, tmp_path):
    """The same COPY and RUN lines of the first stage, without Docker: /src and /opt/reliq become folders in here."""
    source, target = tmp_path / "src", tmp_path / "reliq"
    source.mkdir()
    for verb, rest in re.findall(r"^(COPY|RUN) (.+)$", path.read_text().partition("\n\nFROM ")[0], re.MULTILINE):
        if verb == "COPY":
            *names, to = rest.split()
            for name in names:
                copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copied(ROOT / name, source / (to if len(names) == 1 else name))
        else:
            command = shlex.split(rest.replace("/opt/reliq", str(target)))
            command[0] = sys.executable if command[0] == "python" else command[0]
            subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=170)
    command = re.findall(r'"([^"]+)"', re.findall(r"^CMD \[(.+)\]$", path.read_text(), re.MULTILINE)[-1])[0]
    done = subprocess.run(
        [target / "bin" / "reliq", command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--log-json" in done.stdout


# --- Kubernetes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
def test_kubernetes_would_take_the_manifest(manifest, version):
    """Every field is one that the API server knows; what is KEDA's own is not in its schemas."""
    if manifest["apiVersion"].startswith("keda.sh/"):
        assert manifest["kind"] == "ScaledObject"
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_check_of_manifests_finds_what_is_wrong():
    wrong = copy.deepcopy(DEPLOYMENTS[0])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one["metadata"]["name"])
def test_a_pod_is_hardened_and_its_command_is_one_of_reliq(deployment):
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "livenessProbe" in container
    assert container["resources"]["limits"]["memory"]
    options = parses(container["args"])
    assert pod.get("terminationGracePeriodSeconds", 30) > getattr(options, "grace", 0)
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_every_pod_is_open_to_others_on_the_port_of_its_service_only():
    policies = [one["spec"] for one in MANIFESTS if one["kind"] == "NetworkPolicy"]
    for deployment in DEPLOYMENTS:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        (policy,) = (one for one in policies if _selects(one["podSelector"], labels))
        (rule,) = policy["ingress"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert policy["policyTypes"] == ["Ingress"]
        assert rule["from"]
        assert [one["port"] for one in rule["ports"]] == [one["containerPort"] for one in container["ports"]]


def _selects(selector, labels):
    values = [*selector.get("matchLabels", {}).items()]
    wanted = [(one["key"], one["values"]) for one in selector.get("matchExpressions", ())]
    return all(labels.get(key) == value for key, value in values) and all(labels[key] in some for key, some in wanted)


def test_the_autoscaler_asks_for_metrics_that_are_exported(app, url):
    app.queue("orders").send("x")
    body, _ = Exporter(Store(url), slots={"orders": 1}).render()
    (scaled,) = (one for one in MANIFESTS if one["kind"] == "ScaledObject")
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    for query in queries:
        (selector,) = re.findall(r"reliq_\w+", query)
        assert f'\n{selector}{{queue="orders"'.encode() in body
    (states,) = re.findall(r'state=~"([a-z|]+)"', "".join(queries))
    assert states.split("|") == ["ready", "processing"]  # what is ready needs a worker, what is handled keeps it
    assert scaled["spec"]["scaleTargetRef"]["name"] in {one["metadata"]["name"] for one in DEPLOYMENTS}


def test_the_kustomization_names_all_manifests():
    folder = ROOT / "deploy"
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert {folder / one for one in named["resources"]} == set((folder / "kubernetes").glob("*.yaml"))
    for generator in named["configMapGenerator"]:
        assert all((folder / one).is_file() for one in generator["files"])


# --- documentation ---------------------------------------------------------------------------------------------------


def test_every_metric_is_documented_and_every_documented_one_exists(app, url):
    app.queue("orders").send("x")
    body, _ = Exporter(Store(url), slots={"orders": 1}, monitor=scanned).render()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", body.decode(), re.MULTILINE))
    exported = set(types) | {family.name for family in (WAIT, PROCESS, RECOVERY, LATENESS, HTTP)}
    exported |= {family.name for family in PartitionCollector(Store(url)).collect()}
    exported |= {family.name for family in WorkerCollector(Store(url)).collect()}
    documented = re.findall(r"^\| `(reliq_\w+)", PAGES["reference/metrics.md"](), re.MULTILINE)
    documented += re.findall(r"\| `(reliq_\w+)` \|", PAGES["reference/outcomes.md"]())
    assert sorted(documented) == sorted(exported)


def scanned():
    return MonitorState(
        failures={"promote": 1}, failing={("promote", "orders")}, leading=True, led_queues=1, members=2, taken_over=0,
        last_scan_at=1.0, last_scan_took=0.1, clock_jumps=0,
    )  # fmt: skip
