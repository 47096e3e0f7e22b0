# shellcheck shell=bash
# Sourced by the other scripts. It finds the repository, and `set_up_environment` creates `.venv` there: exact versions
# with hashes from scripts/locked/, then this project. `set_up_demo_environment` installs only what the demo needs; the
# former adds the rest. Both do nothing if .venv is up to date. Works with bash 3.2 (macOS).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
case $(uname -s) in
  MINGW* | MSYS* | CYGWIN*) venv_bin=$venv/Scripts ;;
  *) venv_bin=$venv/bin ;;
esac
python=$venv_bin/python
export PYTHONPATH=$root/scripts:$root${PYTHONPATH:+:$PYTHONPATH}

readonly locks=$root/scripts/locked
readonly development_stamp=$venv/.installed demo_stamp=$venv/.installed-for-demo
readonly environment_busy=$venv/.setting-up
readonly python_rule='import sys; sys.exit(not (sys.version_info >= (3, 11) and sys.maxsize > 2**32))'

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "$(basename "$0"): $*"
  exit 1
}

# The text above the first line of code in a script is its help.
print_help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }
help_if_asked() {
  case ${1:-} in -h | --help)
    print_help
    exit 0
    ;;
  esac
}

# With a script's arguments, they answer --help before the environment exists.
set_up_environment() { set_up development "$@"; }
set_up_demo_environment() { set_up demo "$@"; }

set_up() { # development or demo, arguments of the script
  local lock=$1
  shift
  environment_is_ready "$lock" && return
  help_if_asked "$@"
  check_platform
  base_python=$(find_python)
  check_python_modules
  check_disk "$lock"
  mkdir -p "$venv" || fail "cannot write to $root"
  (
    take_turn
    environment_is_ready "$lock" || install_environment "$lock"
  )
}

environment_is_ready() { # lock; the demo is content with everything
  { is_made_from development "$development_stamp" || { [ "$1" = demo ] && is_made_from demo "$demo_stamp"; }; } &&
    "$python" -c '' 2>/dev/null
}
is_made_from() { [ -f "$2" ] && ingredients "$1" | cmp -s - "$2"; } # lock, stamp
# What .venv is made from, which its stamp repeats; compared as text, so no checksum tool is needed.
ingredients() { printf '%s\n' "$root" && cat "$locks/$1.txt" "$root/pyproject.toml"; } # lock

check_platform() {
  local system machine
  system=$(uname -s) machine=$(uname -m)
  case $system/$machine in
    Linux/x86_64 | Linux/aarch64 | Linux/arm64)
      if ! getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
        fail "this Linux has no glibc (Alpine?), and ONNX Runtime is not built for it. Needed: glibc 2.28 or newer, as in Debian 10, Ubuntu 20.04, RHEL 8 and later."
      fi
      ;;
    Darwin/arm64) ;;
    Darwin/*) fail "Intel Macs are not supported: ONNX Runtime is built for Apple silicon with macOS 14 or newer only." ;;
    MINGW*/x86_64 | MSYS*/x86_64 | CYGWIN*/x86_64) ;;
    *) fail "no binary packages for $system on $machine. Supported: Linux (x86-64, arm64), macOS 14+ on Apple silicon, Windows (x86-64)." ;;
  esac
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3.11 python3 python; do
    if "$candidate" -c "$python_rule" >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
    if [ "$candidate" = "${PYTHON:-}" ]; then
      fail "PYTHON=$PYTHON is not a 64-bit Python 3.11 or newer: $("$PYTHON" --version 2>&1 || true)"
    fi
  done
  fail "Python 3.11 or newer (64 bit) is needed and none was found on PATH. $(how_to_get python)
If it is elsewhere, name it: PYTHON=/path/to/python3 $0"
}

check_python_modules() {
  "$base_python" -c 'import venv, ensurepip' 2>/dev/null && return
  fail "$base_python lacks the modules venv and ensurepip. $(how_to_get venv)"
}

how_to_get() {
  local family
  family=$(uname -s)
  [ -r /etc/os-release ] && family=$(. /etc/os-release && printf '%s %s' "${ID:-}" "${ID_LIKE:-}")
  case $1/$family in
    python/*debian* | python/*ubuntu*) printf '%s' 'Get it with: sudo apt install python3 python3-venv (Debian 12, Ubuntu 24.04 or later; else from python.org or with pyenv).' ;;
    venv/*debian* | venv/*ubuntu*) printf '%s' "Get them with: sudo apt install $("$base_python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" ;;
    */*rhel* | */*fedora*) printf '%s' 'Get it with: sudo dnf install python3.12' ;;
    */*suse*) printf '%s' 'Get it with: sudo zypper install python312' ;;
    */*arch*) printf '%s' 'Get it with: sudo pacman -S python' ;;
    */Darwin) printf '%s' 'Get it with: brew install python@3.13, or from python.org.' ;;
    */MINGW* | */MSYS* | */CYGWIN*) printf '%s' 'Get it with: winget install Python.Python.3.13' ;;
    *) printf '%s' 'Get it from python.org or with pyenv.' ;;
  esac
}

check_disk() { # lock
  local free_mb needed_mb=1600 # .venv takes 1,300 MB, and bytecode 200 MB in time
  [ "$1" = development ] || needed_mb=800
  free_mb=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1024) }')
  [ "$free_mb" -ge "$needed_mb" ] || fail "$needed_mb MB of free disk are needed for .venv in $root, and $free_mb MB are there."
}

# Allow one set-up at a time: mkdir succeeds in one process only. The lock of a killed process is taken over.
take_turn() {
  local announced='' owner
  until mkdir "$environment_busy" 2>/dev/null; do
    owner=$(cat "$environment_busy/pid" 2>/dev/null || true)
    if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
      rm -rf "$environment_busy"
      continue
    fi
    [ -n "$announced" ] || say "Waiting for another set-up (process ${owner:-unknown}) to finish ..."
    announced=yes
    sleep 1
  done
  trap 'rm -rf "$environment_busy"' EXIT
  # The pid of this subshell, which $$ is not: it goes on when a signal ends only the script.
  sh -c 'echo "$PPID"' >"$environment_busy/pid"
}

install_environment() { # lock
  local lock=$1 size=200 started=$SECONDS made_with=$base_python
  # A .venv with everything keeps everything, also when it is the demo that finds it out of date.
  [ ! -f "$development_stamp" ] || lock=development
  [ "$lock" = demo ] || size=530
  if environment_can_be_changed; then made_with=$python; fi
  say "Setting up $venv with $("$made_with" --version) from scripts/locked/$lock.txt: $size MB to download at most, once."
  if [ "$made_with" = "$python" ]; then rm -f "$development_stamp" "$demo_stamp"; else make_empty_environment; fi
  if ! install_with_uv "$lock"; then
    say 'uv cannot install the locked packages here (see above). Trying with pip, which takes longer ...'
    make_empty_environment
    install_with_pip --no-deps --require-hashes -r "$locks/$lock.txt"
    # setuptools is in the lock, so the build needs no download and no isolation.
    install_with_pip --no-deps --no-build-isolation -e "$root"
  fi
  if [ "$lock" = demo ]; then ingredients demo >"$demo_stamp"; else ingredients development >"$development_stamp"; fi
  say "Set up in $((SECONDS - started)) s."
}

# Whether the last set-up of .venv ended, at this path and with a Python that still fits: uv then changes what differs.
environment_can_be_changed() {
  local stamp=$development_stamp installed_at
  [ -f "$stamp" ] || stamp=$demo_stamp
  [ -f "$stamp" ] && read -r installed_at <"$stamp" && [ "$installed_at" = "$root" ] || return
  "$python" -c "$python_rule" 2>/dev/null || return
  [ -z "${PYTHON:-}" ] || [ "$(which_python "$python")" = "$(which_python "$base_python")" ]
}
which_python() { "$1" -c 'import sys; print(sys.version, sys.base_prefix)'; }

make_empty_environment() {
  find "$venv" -mindepth 1 -maxdepth 1 ! -path "$environment_busy" -exec rm -rf {} +
  "$base_python" -m venv "$venv" || fail "python -m venv failed (see above)"
}

# uv downloads and unpacks in parallel, in a fifth of pip's time. It also removes what is not in the lock, save pip and itself.
install_with_uv() ( # lock
  "$python" -m pip install --quiet --disable-pip-version-check --retries 2 --no-deps --require-hashes -r "$locks/uv.txt" || exit
  tell_uv_what_pip_knows
  cd "$root" || exit # uv heeds the settings of the project in which it is called
  quietly "$venv_bin/uv" pip sync --python "$python" --require-hashes "$locks/$1.txt" &&
    quietly "$venv_bin/uv" pip install --quiet --python "$python" --no-deps --no-build-isolation -e .
)

# Adds the packages of one more lock; what both have, they have in the same version.
add_locked() ( # lock
  tell_uv_what_pip_knows
  cd "$root" || exit
  quietly "$venv_bin/uv" pip install --quiet --python "$python" --no-deps --require-hashes -r "$locks/$1.txt"
)

# uv does not read pip's variables and files: this hands on what leads to the package index.
tell_uv_what_pip_knows() {
  local known name value
  known=$("$python" -m pip config list)
  for name in UV_DEFAULT_INDEX=index-url UV_INDEX=extra-index-url UV_INSECURE_HOST=trusted-host SSL_CERT_FILE=cert HTTPS_PROXY=proxy; do
    value=$(sed -nE "s/^(:env:|global|install)\.${name#*=}='(.*)'\$/\2/p" <<<"$known" | head -n 1)
    [ -z "$value" ] || export "${name%%=*}=${value//\\n/ }"
  done
  # As pip does it: the newer ones trust the system's authorities too, and all search every index. The hashes make that safe.
  export UV_SYSTEM_CERTS=true UV_INDEX_STRATEGY=unsafe-best-match
}

quietly() { # command ...: without a terminal, leave out the list of every package
  if [ -t 2 ]; then "$@"; else "$@" 2> >(grep -v '^ [-+~] ' >&2); fi
}

install_with_pip() {
  local pip=("$python" -m pip install --disable-pip-version-check --no-compile)
  if [ -t 1 ] && [ -t 2 ]; then
    "${pip[@]}" "$@" || fail_install
  else
    # Without a terminal there is no progress bar: one line for each large file instead of two for every package.
    "${pip[@]}" --progress-bar off "$@" > >(large_downloads >&2) || fail_install
  fi
}

large_downloads() {
  awk '/Downloading .* MB\)/ { sub(".*/", "", $2); split($2, part, "-"); print "  " part[1] "-" part[2], $(NF - 1), $NF; fflush() }'
}

fail_install() {
  fail "pip could not install the locked packages (its message is above). It needs HTTPS to the package index: behind a proxy set HTTPS_PROXY, with a certificate authority of your own set PIP_CERT, with a mirror set PIP_INDEX_URL. Then run the same command again."
}
