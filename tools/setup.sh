#!/bin/sh
# Builds the project's own environment in .venv from nothing but Python 3.11+:
# a virtual environment, uv (by pip), then exactly what the lock file names, by hash.
# Usage: tools/setup.sh LOCKFILE STAMP
set -eu
lock=$1
stamp=$2
venv=.venv

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

if [ ! -x "$venv/bin/python" ]; then
  found=
  for candidate in ${PYTHON:-python3} python3.14 python3.13 python3.12 python3.11; do
    if suits "$candidate"; then found=$candidate; break; fi
  done
  if [ -z "$found" ]; then
    echo "setup: Horae needs Python 3.11 or newer and found none. Install one, or name it: make PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  echo "setup: creating $venv with $($found --version)"
  "$found" -m venv "$venv" || {
    rm -rf "$venv"
    echo "setup: this Python has no venv module (on Debian: apt-get install python3-venv)" >&2
    exit 1
  }
fi
if [ ! -x "$venv/bin/uv" ]; then
  echo "setup: installing uv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.7
fi
echo "setup: installing what $lock names"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes --requirement "$lock"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
touch "$stamp"
