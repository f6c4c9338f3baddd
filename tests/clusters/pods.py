"""Runs containers of pods as Kubernetes does, without Kubernetes: on Linux, as root, with the
programs `ip`, `mount`, `unshare`, `setpriv` and `chroot`.

Each pod is a network namespace. The pods share a bridge in a namespace of their own, so nothing
outside reaches them. A container has the image as its root, private mounts, its own process
numbers, and the arguments, variables, volumes, user and group of the manifest.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

PROGRAMS = ["ip", "mount", "unshare", "setpriv", "chroot"]


def missing():
    """Returns why pods cannot run here, or an empty string."""
    if os.geteuid() != 0:
        return "pods need root"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)} on this machine"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"],
                           capture_output=True, text=True)
    return tried.stderr.strip()


def _ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """A network of pods, with the names of a headless service."""

    def __init__(self, folder, names):
        self._prefix = f"kvpods{os.getpid()}"
        self._namespaces = []
        self.names = names
        self.hosts = Path(folder) / "hosts"
        lines = [f"{self.address(index)} {name}" for index, name in enumerate(names)]
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def address(index):
        return f"10.113.8.{index + 1}"

    def _add(self, name):
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")

    def _connect(self):
        switch = f"{self._prefix}s"
        self._add(switch)
        _ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for index in range(len(self.names)):
            pod = self.namespace(index)
            self._add(pod)
            port = f"port{index}"
            _ip("link", "add", port, "netns", switch, "type", "veth",
                "peer", "name", "eth0", "netns", pod)
            _ip("-n", switch, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", pod, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            _ip("-n", pod, "link", "set", "eth0", "up")

    def namespace(self, index):
        return f"{self._prefix}p{index}"

    def close(self):
        """Kills what still runs in the pods, and removes the network."""
        for name in self._namespaces:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in found.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        self._namespaces = []

    def command(self, index, command):
        """Returns a command of this machine that runs in a pod, with the names of the pods."""
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return ["ip", "netns", "exec", self.namespace(index), "unshare", "--mount",
                "sh", "-c", script, str(self.hosts), *command]


class Container:
    """The only container of a pod. Volumes are folders of this machine, by their names."""

    def __init__(self, network, index, spec, root, volumes):
        (self.container,) = spec["containers"]
        self._network = network
        self._index = index
        self._security = spec["securityContext"]
        self._root = root
        self._volumes = volumes

    def environment(self):
        return {each["name"]: self._value(each) for each in self.container.get("env", [])}

    def _value(self, variable):
        if "value" in variable:
            return variable["value"]
        field = variable["valueFrom"]["fieldRef"]["fieldPath"]
        return {"metadata.labels['apps.kubernetes.io/pod-index']": str(self._index)}[field]

    def _setup(self):
        """Returns the commands that mount the volumes and then the root read-only."""
        yield "set -e"
        yield f"mount --bind {self._root} {self._root}"
        for mount in self.container["volumeMounts"]:
            target = f"{self._root}{mount['mountPath']}"
            os.makedirs(target, exist_ok=True)
            yield f"mount --bind {self._volumes[mount['name']]} {target}"
            if mount.get("readOnly"):
                yield f"mount -o remount,bind,ro {target}"
        etc = f"{self._root}/etc"
        os.makedirs(etc, exist_ok=True)
        Path(f"{etc}/hosts").touch()
        yield f"mount --bind {self._network.hosts} {etc}/hosts"
        if self.container["securityContext"].get("readOnlyRootFilesystem"):
            yield f"mount -o remount,bind,ro {self._root}"
        yield 'exec "$@"'

    def _drop(self):
        """Returns the command that takes the user and the group of the manifest. Without new
        privileges, another user than root has and gets no capabilities."""
        user, group = self._security["runAsUser"], self._security["runAsGroup"]
        rights = self.container["securityContext"]
        assert not rights["allowPrivilegeEscalation"] and rights["capabilities"]["drop"] == ["ALL"]
        return ["setpriv", "--no-new-privs", "chroot", f"--userspec={user}:{group}",
                f"--groups={self._security['fsGroup']}", str(self._root)]

    def start(self, command, **options):
        """Starts a command in the container. Killing the returned process kills the command."""
        script = "\n".join(self._setup())
        started = ["ip", "netns", "exec", self._network.namespace(self._index),
                   "unshare", "--mount", "--pid", "--fork", "--kill-child",
                   "sh", "-c", script, "sh", *self._drop(), *command]
        # Programs of this machine find each other without PATH in the container.
        started[0] = shutil.which("ip")
        environment = {**self.environment(), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.Popen(started, env=environment, text=True, **options)


def signal_command(process, number):
    """Sends a signal to the command of a container, which has the number 1 there."""
    # `unshare --fork` has one child, the command.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (child,) = children
    os.kill(int(child), number)
