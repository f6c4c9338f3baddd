#!/bin/sh
# try-wheel.sh WHEEL [PYTHON]   installs a wheel into an empty environment, checks that NumPy is its
# only dependency, and runs the examples of README and quick start there. Each must print the text
# in the comments beside `print`.
set -eu
cd "$(dirname "$0")/.."
wheel=$1 python=${2:-python3}

version=$("$python" -c 'import platform; print(platform.python_version())')
empty=target/python-venv/$version-empty
# A new environment for every wheel, because pip must find the wheel's dependencies.
rm -rf "$empty"
scripts/venv.py --python "$python" "$empty" "$wheel"
"$empty/bin/pip" list --disable-pip-version-check --format=freeze | cut -d= -f1 |
    grep -vE '^(pip|setuptools|wheel)$' | tr '\n' ' ' | grep -qx 'mxkv numpy '

example=target/python-venv/example.py
for page in README.md docs/getting-started/python.md; do
    sed -n '/^```python$/,/^```$/{/^```python$/d;/^```$/q;p;}' "$page" >"$example"
    expected=$(sed -n 's/^print(.*  # //p' "$example")
    printed=$(cd / && "$OLDPWD/$empty/bin/python" - <"$OLDPWD/$example")
    if [ -z "$expected" ] || [ "$printed" != "$expected" ]; then
        echo "$page, in Python $version: expected $expected, found $printed"
        exit 1
    fi
    echo "python: $version: the example of $page prints what it says, with $(basename "$wheel")"
done
