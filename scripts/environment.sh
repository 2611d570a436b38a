# Sourced by ./kubewright and ./test: makes .venv from the lock file `requirements/$1.txt` unless it is up to date.
# Needs Python 3.11 or newer and pip; uses uv where it is found. Nothing is compiled: wheels only.

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

find_python() {
    for candidate in ${KUBEWRIGHT_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "kubewright needs Python 3.11 or newer; found: $(python3 --version 2>&1 || echo none). Install one, or set KUBEWRIGHT_PYTHON to it." >&2
    exit 2
}

prepare() {
    lock="$root/requirements/$1.txt"
    stamp="$root/.venv/.installed-$1"
    wanted=$(cksum <"$lock")
    if [ -x "$root/.venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    python=$(find_python) || exit 2
    echo "Preparing .venv from requirements/$1.txt (first run only) ..." >&2
    if command -v uv >/dev/null 2>&1; then
        [ -x "$root/.venv/bin/python" ] || uv venv --quiet --python "$python" "$root/.venv" || exit 2
        uv pip install --python "$root/.venv/bin/python" --only-binary :all: --require-hashes -r "$lock" >&2 || exit 2
    else
        # Some systems ship venv without ensurepip; pip can then install into the environment from outside.
        if [ ! -x "$root/.venv/bin/python" ]; then
            "$python" -m venv "$root/.venv" >/dev/null 2>&1 || "$python" -m venv --clear --without-pip "$root/.venv" || exit 2
        fi
        if "$root/.venv/bin/python" -m pip --version >/dev/null 2>&1; then
            set -- "$root/.venv/bin/python" -m pip
        else
            set -- "$python" -m pip --python "$root/.venv/bin/python"
        fi
        "$@" install --disable-pip-version-check --no-input --only-binary :all: --require-hashes -r "$lock" >&2 || exit 2
    fi
    printf '%s' "$wanted" >"$stamp"
}

PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
