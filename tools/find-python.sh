#!/bin/sh
# Print a Python that can make the virtual environment: the one given, or else the first that fits. Say plainly if none does.
set -u

for candidate in ${1:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        found="${found:-}${found:+, }$candidate $("$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo 'does not start')"
    elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        found="${found:-}${found:+, }$candidate without the venv module (Debian and Ubuntu: apt install python3-venv)"
    else
        command -v "$candidate"
        exit 0
    fi
done

echo "setup: no usable Python; needed is 3.11 or newer with its venv module. Found: ${found:-none}." >&2
echo "setup: install one, or name it: make setup PYTHON=/path/to/python3.12" >&2
exit 1
