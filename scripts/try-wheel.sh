#!/bin/sh
# try-wheel.sh WHEEL [PYTHON]  installs a wheel into an empty environment, sees that it brings nothing but NumPy, and runs the
# README's first example in Python there, which has to print what is said behind each `print`.
set -eu
cd "$(dirname "$0")/.."
wheel=$1 python=${2:-python3}

version=$("$python" -c 'import platform; print(platform.python_version())')
empty=target/python-venv/$version-empty
# New for every wheel, because pip has to find what the wheel depends on.
rm -rf "$empty"
scripts/venv.py --python "$python" "$empty" "$wheel"
"$empty/bin/pip" list --disable-pip-version-check --format=freeze | cut -d= -f1 | grep -vE '^(pip|setuptools|wheel)$' |
    tr '\n' ' ' | grep -qx 'mxkv numpy '

readme=target/python-venv/readme.py
sed -n '/^```python$/,/^```$/{/^```python$/d;/^```$/q;p;}' README.md >"$readme"
printed=$(cd / && "$OLDPWD/$empty/bin/python" - <"$OLDPWD/$readme")
[ "$printed" = "$(sed -n 's/^print(.*  # //p' "$readme")" ] || { echo "README.md, in Python $version: found $printed"; exit 1; }
echo "python: $version: the README's example prints what it says, with $(basename "$wheel")"
