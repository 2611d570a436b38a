# Sourced by ./kubewright and ./test: makes .venv from the lock file `requirements/$1.txt` unless it is up to date.
# Needs Python 3.11 or newer and pip; uses uv where it is found. Nothing is compiled: wheels only.

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv="$root/.venv"

find_python() {
    for candidate in ${KUBEWRIGHT_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "kubewright needs Python 3.11 or newer; found: $(python3 --version 2>&1 || echo none)." \
        "Install one, or set KUBEWRIGHT_PYTHON to it." >&2
    exit 2
}

# Whether one of these lock files is installed as it is now.
is_installed() {
    for name in "$@"; do
        [ "$(cat "$venv/.installed-$name" 2>/dev/null)" = "$(cksum <"$root/requirements/$name.txt")" ] && return
    done
    return 1
}

# pip says ten lines for each package; of $1 packages this shows which one it is at, and everything when it fails.
show_pip() {
    at=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$venv/.pip.log"
        case $line in
        Collecting* | "Requirement already"*)
            at=$((at + 1))
            package=${line#Collecting }
            package=${package#Requirement already satisfied: }
            if [ -t 2 ]; then
                printf '\r\033[K  %s of %s: %s' "$at" "$1" "${package%% *}" >&2
            elif [ $((at % 10)) -eq 0 ]; then
                echo "  $at of $1 packages" >&2
            fi
            ;;
        Installing*)
            [ ! -t 2 ] || printf '\r\033[K' >&2
            echo "  installing them ..." >&2
            ;;
        esac
    done
}

# `prepare run`, `aws` or `dev`; each holds the one before.
prepare() {
    case $1 in
    run) set -- "$1" run aws dev ;;
    aws) set -- "$1" aws dev ;;
    *) set -- "$1" "$1" ;;
    esac
    lock="$root/requirements/$1.txt"
    wanted=$1
    shift
    if [ -x "$venv/bin/python" ] && is_installed "$@"; then
        return
    fi
    python=$(find_python) || exit 2
    [ -x "$venv/bin/python" ] || rm -rf "$venv"
    packages=$(grep -c '^[A-Za-z0-9]' "$lock")
    echo "Setting up .venv with $packages packages from requirements/$wanted.txt (only the first time) ..." >&2
    if command -v uv >/dev/null 2>&1; then
        [ -x "$venv/bin/python" ] || uv venv --quiet --python "$python" "$venv" || exit 2
        set -- uv pip install --python "$venv/bin/python" --only-binary :all: --require-hashes -r "$lock"
        if [ -t 2 ]; then
            "$@" || exit 2
        else
            "$@" --quiet || exit 2
        fi
    else
        # Some systems ship venv without ensurepip; pip can then install into the environment from outside.
        if [ ! -x "$venv/bin/python" ]; then
            "$python" -m venv "$venv" >/dev/null 2>&1 || "$python" -m venv --clear --without-pip "$venv" || exit 2
        fi
        if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
            set -- "$venv/bin/python" -m pip
        elif "$python" -m pip --version >/dev/null 2>&1; then
            set -- "$python" -m pip --python "$venv/bin/python"
        else
            echo "kubewright needs pip (or uv) to set itself up, and $python has none: install the package python3-pip." >&2
            exit 2
        fi
        rm -f "$venv/.pip.log" "$venv/.pip.status"
        {
            PIP_USER=0 "$@" install --disable-pip-version-check --no-input --progress-bar off --only-binary :all: \
                --require-hashes -r "$lock" 2>&1
            echo $? >"$venv/.pip.status"
        } | show_pip "$packages"
        if [ "$(cat "$venv/.pip.status")" != 0 ]; then
            echo "pip could not install them:" >&2
            cat "$venv/.pip.log" >&2
            exit 2
        fi
    fi
    cksum <"$lock" >"$venv/.installed-$wanted"
}

PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
