#!/usr/bin/env python3
"""Creates a virtual environment with packages, unless a complete one exists.

    venv.py [OPTION..] FOLDER [PACKAGE..]

A stamp in the folder records the packages and options. It is written last, so an interrupted
installation is not complete. With other packages or options, the environment is created again. Only
one process at a time changes the folder; others wait. pip's output goes to standard error.

With KVSTORE_SETUP=print, prints what it would install, and ends with status 1 if there is anything.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

STAMP = "kvstore-packages.json"
# The folders that `python -m venv` creates before the file that marks an environment.
FIRST_FOLDERS = {"bin", "include", "lib", "lib64"}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="venv.py", allow_abbrev=False)
    parser.add_argument(
        "--python", help="the Python of the environment; without it python3, and any will do"
    )
    parser.add_argument(
        "--system-site-packages", action="store_true", help="also has the system's packages"
    )
    parser.add_argument(
        "--no-deps", action="store_true", help="installs no dependencies of the packages"
    )
    parser.add_argument(
        "--import", dest="module", help="a module that the complete environment can import"
    )
    parser.add_argument(
        "--wheel",
        help="installed again by each call, without dependencies: the version does not"
        " tell one build of a wheel from the next",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*")
    return parser.parse_args(arguments)


class Failure(Exception):
    """A message for the user."""


def run(*command):
    try:
        subprocess.run(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(str(error)) from None


def identity(python):
    """Returns the path and the version of a Python."""
    command = [python, "-c", "import sys; print(sys.executable, *sys.version_info[:2])"]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            universal_newlines=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(str(error)) from None


@contextlib.contextmanager
def locked(folder):
    """Locks the folder against other processes. The lock ends with the process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"venv.py: waits for another process that makes {folder}",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_complete(folder, stamp):
    try:
        if (folder / STAMP).read_text(encoding="utf-8") != stamp:
            return False
    except OSError:
        return False
    # Fails if the system's Python was removed or replaced by a later version.
    check = [str(folder / "bin" / "python"), "-c", "import pip"]
    try:
        return (
            subprocess.run(check, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            == 0
        )
    except OSError:
        return False


def remove(folder):
    if not folder.exists():
        return
    if (
        not (folder / "pyvenv.cfg").exists()
        and not {path.name for path in folder.iterdir()} <= FIRST_FOLDERS
    ):
        raise Failure(f"{folder} is not a virtual environment, so it is not replaced")
    shutil.rmtree(folder)


def pip_install(folder, *arguments):
    run(
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    )


def make(options, stamp):
    remove(options.folder)
    site = ["--system-site-packages"] if options.system_site_packages else []
    run(options.python or "python3", "-m", "venv", *site, options.folder)
    if options.packages:
        pip_install(options.folder, *(["--no-deps"] if options.no_deps else []), *options.packages)
    if options.module:
        run(options.folder / "bin" / "python", "-c", f"import {options.module}")
    # The stamp is renamed, so that it appears complete or not at all.
    unfinished = options.folder / f"{STAMP}.new"
    unfinished.write_text(stamp, encoding="utf-8")
    unfinished.replace(options.folder / STAMP)


def main(arguments):
    options = parse(arguments)
    # Without --python, the interpreter is not recorded, because callers have different ones first
    # on PATH.
    stamp = json.dumps(
        {
            "python": options.python and identity(options.python),
            "packages": options.packages,
            "options": [options.system_site_packages, options.no_deps, options.module],
        }
    )
    if os.environ.get("KVSTORE_SETUP") == "print":
        packages = (
            []
            if is_complete(options.folder, stamp)
            else ["a virtual environment", *options.packages]
        )
        packages += [options.wheel] if options.wheel else []
        if packages:
            raise Failure(f"would install into {options.folder}: {' '.join(packages)}")
        return
    with locked(options.folder):
        if not is_complete(options.folder, stamp):
            make(options, stamp)
        if options.wheel:
            pip_install(options.folder, "--force-reinstall", "--no-deps", options.wheel)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"venv.py: {failure}")
