"""Checks examples/kubernetes: the manifests against the schemas of Kubernetes and the options of
`kvstore`, and the image of the servers in pods without Kubernetes.

    python tests/clusters/test_kubernetes.py IMAGE FOLDER

IMAGE is the archive of scripts/container.sh, FOLDER is for all files of the test. Needs the
packages kubernetes-validate, numpy and mxkv.
"""

import copy
import os
import re
import shlex
import signal
import shutil
import subprocess
import sys
import time
import tomllib
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

from image import Image
from pods import Container, Network, missing, signal_command

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kubernetes"
FILES = ["servers.yaml", "workers.yaml", "restore.yaml"]
#: The oldest version of Kubernetes whose schemas the manifests match.
OLDEST = (1, 29)
SECONDS_TO_WAIT = 60
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"

IMAGE = FOLDER = None


def documents(file):
    with open(EXAMPLE / file, encoding="utf-8") as text:
        return list(yaml.safe_load_all(text))


def named(kind, name):
    """Returns the object of a kind with this name."""
    found = [document for file in FILES for document in documents(file)
             if (document["kind"], document["metadata"]["name"]) == (kind, name)]
    (document,) = found
    return document


def pod(kind, name):
    """Returns the specification of the pods of an object."""
    return named(kind, name)["spec"]["template"]["spec"]


def settings():
    return tomllib.loads(named("ConfigMap", "kvstore")["data"]["server.toml"])


def versions():
    """Returns the versions whose schemas are installed, from OLDEST on."""
    found = {tuple(map(int, match.groups())) for path in SCHEMAS.iterdir()
             if (match := re.match(r"v(\d+)\.(\d+)\.", path.name))}
    return [f"{major}.{minor}" for major, minor in sorted(found) if (major, minor) >= OLDEST]


def faults(document, version):
    """Returns the fault of a document, or an empty string."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


class Schemas(unittest.TestCase):
    def test_manifests_match_the_schemas(self):
        checked = versions()
        for file in FILES:
            for document in documents(file):
                for version in checked:
                    with self.subTest(file=file, kind=document["kind"], version=version):
                        self.assertEqual(faults(document, version), "")
        print(f"checked against Kubernetes {checked[0]} to {checked[-1]}")
        self.assertGreater(len(checked), 3)

    def test_planted_faults_are_found(self):
        for path, value in [(["spec", "replicas"], "two"), (["spec", "replica"], 2),
                            (["spec", "template", "spec", "containers"], None),
                            (["apiVersion"], "apps/v7")]:
            broken = copy.deepcopy(named("StatefulSet", "kvstore"))
            place = broken
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            with self.subTest(path):
                try:
                    self.assertNotEqual(faults(broken, versions()[-1]), "")
                except kubernetes_validate.SchemaNotFoundError:
                    self.assertEqual(path, ["apiVersion"])


class Manifests(unittest.TestCase):
    """The objects fit each other and the options of `kvstore`."""

    @classmethod
    def setUpClass(cls):
        cls.root = FOLDER / "help"
        cls.root.mkdir(parents=True)
        Image(IMAGE).unpack(cls.root)

    def options(self, command):
        """Returns the options that the command of the image has."""
        done = subprocess.run([self.root / "kvstore", command, "--help"], check=True,
                              capture_output=True, text=True)
        found = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", done.stdout, re.M))
        self.assertIn("--certificates", found)
        return found

    def assert_known(self, command, arguments):
        found = {argument for argument in arguments if argument.startswith("--")}
        self.assertLessEqual(found, self.options(command))

    def test_servers_have_only_known_options(self):
        container, = pod("StatefulSet", "kvstore")["containers"]
        command, *arguments = container["args"]
        self.assertEqual(command, "serve")
        self.assert_known("serve", arguments)
        options = {name[2:].replace("-", "_") for name in self.options("serve")}
        # The log is not in the file.
        self.assertLessEqual(set(settings()), options - {"config", "log", "log_format"})
        variables = {each["name"] for each in container["env"]}
        self.assertLessEqual(variables, {f"KVSTORE_{name.upper()}" for name in options})

    def test_probes_have_only_known_options(self):
        container, = pod("StatefulSet", "kvstore")["containers"]
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"]:
            program, command, *arguments = container[probe]["exec"]["command"]
            self.assertEqual((program, command), ("/kvstore", "status"))
            self.assert_known("status", arguments)
            timeout = float(arguments[arguments.index("--timeout") + 1])
            self.assertLess(timeout, container[probe]["timeoutSeconds"])

    def test_servers_have_the_names_that_workers_use(self):
        servers = named("StatefulSet", "kvstore")
        service = named("Service", servers["spec"]["serviceName"])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        labels = servers["spec"]["template"]["metadata"]["labels"]
        budget = named("PodDisruptionBudget", "kvstore")
        for selector in [service["spec"]["selector"], servers["spec"]["selector"]["matchLabels"],
                         budget["spec"]["selector"]["matchLabels"]]:
            self.assertEqual(selector, labels)
        ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
        container, = servers["spec"]["template"]["spec"]["containers"]
        opened = {each["name"]: each["containerPort"] for each in container["ports"]}
        self.assertEqual(opened, ports)
        self.assertEqual(settings()["address"], f"0.0.0.0:{ports['members']}")
        self.assertEqual(settings()["metrics"], f"0.0.0.0:{ports['metrics']}")
        expected = [f"kvstore-{index}.kvstore:{ports['members']}"
                    for index in range(servers["spec"]["replicas"])]
        self.assertEqual(settings()["followers"].split(","), expected[1:])
        for job in ["digits", "digits-restore"]:
            container, = pod("Job", job)["containers"]
            variables = {each["name"]: each["value"] for each in container["env"]}
            self.assertEqual(variables["KVSTORE_SERVERS"].split(","), expected)
            self.assertLessEqual({f"{name.split(':')[0]}" for name in expected},
                                 set(certificate_command()["--hosts"].split(",")))

    def test_jobs_have_an_index_for_each_worker(self):
        job = named("Job", "digits")["spec"]
        container, = job["template"]["spec"]["containers"]
        workers = container["args"][container["args"].index("--workers") + 1]
        self.assertEqual(job["completionMode"], "Indexed")
        self.assertEqual((job["completions"], job["parallelism"]), (int(workers), int(workers)))

    def test_containers_have_no_rights(self):
        config = Image(IMAGE).config
        self.assertEqual(config["Entrypoint"], ["/kvstore"])
        self.assertEqual(config["User"], "65532:65532")
        for kind, name in [("StatefulSet", "kvstore"), ("Job", "digits"),
                           ("Job", "digits-restore")]:
            with self.subTest(name):
                spec = pod(kind, name)
                user = spec["securityContext"]
                self.assertTrue(user["runAsNonRoot"])
                self.assertEqual(f"{user['runAsUser']}:{user['runAsGroup']}", config["User"])
                self.assertFalse(spec["automountServiceAccountToken"])
                self.assertFalse(spec["enableServiceLinks"])
                container, = spec["containers"]
                self.assertEqual(container["securityContext"], {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]}})
                self.assertIn("memory", container["resources"]["limits"])

    def test_servers_have_the_time_that_they_need_to_stop(self):
        grace = pod("StatefulSet", "kvstore")["terminationGracePeriodSeconds"]
        self.assertGreater(grace, 65)

    def test_the_image_of_the_workers_has_their_programs(self):
        copied = dict(re.findall(r"^COPY (\S+) (\S+)$",
                                 (EXAMPLE / "Containerfile").read_text(encoding="utf-8"), re.M))
        for job in ["digits", "digits-restore"]:
            (container,) = pod("Job", job)["containers"]
            python, program = container["command"]
            self.assertEqual(python, "python")
            (source,) = [source for source, target in copied.items()
                         if program.startswith(f"{target}/")]
            self.assertTrue((ROOT / source / Path(program).name).exists(), program)


def certificate_command():
    """Returns the command for certificates on the page: its arguments by name."""
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^kvstore (certs .*)$", page, re.M)
    _, *arguments = shlex.split(line)
    return dict(zip(arguments[::2], arguments[1::2]))


@unittest.skipIf(missing(), missing())
class Pods(unittest.TestCase):
    """The servers of the manifest run in pods, and the commands of the jobs reach them."""

    def setUp(self):
        self.folder = FOLDER / self._testMethodName
        self.folder.mkdir(parents=True)
        self.spec = pod("StatefulSet", "kvstore")
        self.image = Image(IMAGE)
        self.group = self.spec["securityContext"]["fsGroup"]
        replicas = named("StatefulSet", "kvstore")["spec"]["replicas"]
        self.network = Network(self.folder, [f"kvstore-{index}.kvstore"
                                             for index in range(replicas)])
        self.addCleanup(self.network.close)
        self.claim = self.make_claim()
        self.make_certificates()
        self.servers = [self.container(index) for index in range(replicas)]
        self.running = []

    def make_claim(self):
        """Returns a volume that the group of the pods can write."""
        claim = self.folder / "checkpoints"
        claim.mkdir()
        os.chown(claim, 0, self.group)
        claim.chmod(0o2775)
        return claim

    def make_certificates(self):
        """Makes the certificates with the command on the page."""
        root = self.folder / "kvstore"
        root.mkdir()
        self.image.unpack(root)
        arguments = [part for pair in certificate_command().items() for part in pair]
        subprocess.run([root / "kvstore", "certs", *arguments], cwd=self.folder, check=True,
                       capture_output=True)

    def make_volumes(self, index):
        """Returns folders for the volumes that each server has of its own."""
        made = {}
        for claim in named("StatefulSet", "kvstore")["spec"]["volumeClaimTemplates"]:
            name = claim["metadata"]["name"]
            made[name] = self.folder / f"{name}-kvstore-{index}"
            made[name].mkdir()
            os.chown(made[name], 0, self.group)
            made[name].chmod(0o2775)
        return made

    def volume(self, volume):
        """Returns a folder with the contents of a volume."""
        if "persistentVolumeClaim" in volume:
            return self.claim
        folder = self.folder / f"volume-{volume['name']}"
        if folder.exists():
            return folder
        folder.mkdir()
        if "configMap" in volume:
            data = named("ConfigMap", volume["configMap"]["name"])["data"]
            for file, text in data.items():
                (folder / file).write_text(text)
            return folder
        secret = volume["secret"]
        role = secret["secretName"].removeprefix("kvstore-")
        for file in (self.folder / "certs" / role).iterdir():
            copied = shutil.copy(file, folder)
            os.chown(copied, 0, self.group)
            os.chmod(copied, secret["defaultMode"])
        return folder

    def container(self, index):
        root = self.folder / f"root-{index}"
        root.mkdir()
        self.image.unpack(root)
        volumes = {volume["name"]: self.volume(volume) for volume in self.spec["volumes"]}
        volumes |= self.make_volumes(index)
        return Container(self.network, index, self.spec, root, volumes)

    def start_servers(self):
        self.running = [self.start_server(index) for index in range(len(self.servers))]
        for index in range(len(self.servers)):
            self.wait_for(index)

    def start_server(self, index):
        server = self.servers[index]
        command = [*self.image.config["Entrypoint"], *server.container["args"]]
        log = open(self.folder / f"server-{index}.log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        process = server.start(command, stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def lose_volumes(self):
        """Empties the volumes that each server has of its own."""
        for index in range(len(self.servers)):
            for claim in named("StatefulSet", "kvstore")["spec"]["volumeClaimTemplates"]:
                volume = self.folder / f"{claim['metadata']['name']}-kvstore-{index}"
                for entry in volume.iterdir():
                    shutil.rmtree(entry)

    def probe(self, index, name):
        command = self.servers[index].container[name]["exec"]["command"]
        process = self.servers[index].start(command, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT)
        printed, _ = process.communicate(timeout=SECONDS_TO_WAIT)
        return process.returncode, printed

    def wait_for(self, index):
        end = time.monotonic() + SECONDS_TO_WAIT
        while (probed := self.probe(index, "startupProbe"))[0] != 0:
            self.assertIsNone(self.running[index].poll(), self.log(index))
            self.assertLess(time.monotonic(), end, f"{probed}\n{self.log(index)}")

    def log(self, index):
        return (self.folder / f"server-{index}.log").read_text(encoding="utf-8")

    def num_rewinds(self, index):
        return self.log(index).count("continuing from a recovery point")

    def stop_servers(self):
        for process in self.running:
            signal_command(process, signal.SIGTERM)
        grace = self.spec["terminationGracePeriodSeconds"]
        return [process.wait(timeout=grace) for process in self.running]

    def start_job(self, job, server, *arguments, **environment):
        """Starts the command of a job in the pod of a server. The paths of its image become those
        of this machine."""
        spec = pod("Job", job)
        (container,) = spec["containers"]
        volumes = {volume["name"]: self.volume(volume | {"name": f"{job}-{volume['name']}"})
                   for volume in spec["volumes"]}
        paths = {mount["mountPath"]: str(volumes[mount["name"]])
                 for mount in container["volumeMounts"]}
        paths |= {"/app/": f"{ROOT}/examples/"}

        def here(text):
            for path, replacement in paths.items():
                if text.startswith(path):
                    return replacement + text[len(path):]
            return text

        variables = {each["name"]: here(each["value"]) for each in container["env"]}
        command = [here(text) for text in [*container["command"], *container["args"], *arguments]]
        command[0] = sys.executable
        return subprocess.Popen(self.network.command(server, command), text=True,
                                env={**os.environ, **variables, **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def start_worker(self, index, *arguments):
        server = index % len(self.servers)
        return self.start_job("digits", server, *arguments, JOB_COMPLETION_INDEX=str(index))

    def outputs(self, processes):
        """Waits for processes. Returns what they have printed."""
        found = []
        for process in processes:
            printed, _ = process.communicate(timeout=SECONDS_TO_WAIT)
            self.assertEqual(process.returncode, 0, printed)
            found.append(printed.strip())
        return found

    def num_pushes(self):
        """Returns the number of pushes to all keys of the first server."""
        return self.metric("pushes")

    def metric(self, name):
        (number,) = re.findall(rf"(?m)^kvstore_{name}(?:_total)? (\d+)", self.metrics())
        return int(number)

    def metrics(self):
        """Returns the metrics of the first server, as a reader in its pod gets them. Fails if the
        server is not healthy."""
        reader = self.folder / "certs" / "reader"
        script = (
            "import ssl, sys; from urllib.request import urlopen\n"
            f"context = ssl.create_default_context(cafile='{reader}/ca.pem')\n"
            f"context.load_cert_chain('{reader}/cert.pem', '{reader}/key.pem')\n"
            "for path in ['healthz', 'metrics']:\n"
            f"    url = f'https://{self.network.names[0]}:9192/{{path}}'\n"
            "    print(urlopen(url, context=context, timeout=30).read().decode())\n"
        )
        command = self.network.command(0, [sys.executable, "-c", script])
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_workers_train_on_the_servers_and_a_checkpoint_is_restored(self):
        self.start_servers()
        for name in ["readinessProbe", "livenessProbe"]:
            self.assertEqual(self.probe(0, name)[0], 0)

        workers = range(named("Job", "digits")["spec"]["completions"])
        results = self.outputs([self.start_worker(index) for index in workers])
        for result in results:
            print(result)
        weights = {re.search(r"weights (\w+)$", result)[1] for result in results}
        accuracy = float(re.search(r"accuracy ([\d.]+)", results[0])[1])
        self.assertEqual(len(weights), 1)
        self.assertGreater(accuracy, 0.9)
        self.assertGreater(self.num_pushes(), 0)

        parts = list((self.claim / "digits").glob("*.safetensors"))
        self.assertEqual(len(parts), len(self.servers))
        user = self.spec["securityContext"]["runAsUser"]
        self.assertEqual({part.stat().st_uid for part in parts}, {user})

        self.assertEqual(self.stop_servers(), [0] * len(self.servers), self.log(0))
        self.assertNotEqual(self.probe(0, "livenessProbe")[0], 0)
        self.lose_volumes()
        self.start_servers()
        (restored,) = self.outputs([self.start_job("digits-restore", 0)])
        print(restored)
        self.assertEqual(restored, f"restored bias, weights: accuracy {accuracy:.3f}")
        self.assertEqual(self.stop_servers(), [0] * len(self.servers), self.log(0))

    def test_a_worker_that_is_killed_and_started_again_continues(self):
        self.start_servers()
        killed, other = [self.start_worker(index, "--epochs", "200") for index in [0, 1]]
        end = time.monotonic() + SECONDS_TO_WAIT
        while self.num_pushes() < 100:
            self.assertIsNone(killed.poll())
            self.assertLess(time.monotonic(), end)
        killed.kill()
        printed, _ = killed.communicate()
        self.assertEqual((killed.returncode, printed), (-signal.SIGKILL, ""))
        for result in self.outputs([self.start_worker(0), other]):
            self.assertRegex(result, r"^worker . of 2: .* accuracy 0\.9\d+, ")

    def test_a_killed_server_continues_from_a_recovery_point_with_the_others(self):
        self.start_servers()
        workers = [self.start_worker(index, "--epochs", "200") for index in [0, 1]]
        end = time.monotonic() + SECONDS_TO_WAIT
        # The first points are made soon after the workers have initialised the keys.
        while self.num_pushes() < 100 or self.metric("recovery_points") < 2:
            self.assertLess(time.monotonic(), end)
        for index in range(len(self.servers)):
            signal_command(self.running[index], signal.SIGKILL)
            self.running[index].wait()
            num_rewinds = [self.num_rewinds(server) for server in range(len(self.servers))]
            self.running[index] = self.start_server(index)
            self.wait_for(index)
            # All servers have gone back, also those that were not killed.
            for server, before in enumerate(num_rewinds):
                while self.num_rewinds(server) == before:
                    self.assertLess(time.monotonic(), end, self.log(server))
            self.assertEqual(self.probe(index, "readinessProbe")[0], 0)
        for result in self.outputs(workers):
            print(result)
            self.assertRegex(result, r"^worker . of 2: .* accuracy 0\.9\d+, ")
        self.assertEqual(self.stop_servers(), [0] * len(self.servers), self.log(0))

    def test_a_server_without_its_certificates_does_not_start(self):
        (self.volume({"name": "certificates", "secret": {
            "secretName": "kvstore-server", "defaultMode": 0o440}}) / "key.pem").unlink()
        server = self.servers[0]
        command = [*self.image.config["Entrypoint"], *server.container["args"]]
        process = server.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed, _ = process.communicate(timeout=SECONDS_TO_WAIT)
        self.assertEqual(process.returncode, 2, printed)
        self.assertIn("/etc/kvstore-certificates/key.pem", printed)


if __name__ == "__main__":
    IMAGE, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
