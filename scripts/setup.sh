#!/usr/bin/env bash
# Installs the Debian 12 packages that the build, the tests and the examples need and that are missing.
#   scripts/setup.sh          to build, test and run
#   scripts/setup.sh --dev    to format, lint, measure coverage and test the bindings, too
set -euo pipefail

packages=(
  git ca-certificates g++ cmake ninja-build ccache pkg-config python3
  libfmt-dev libspdlog-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libexpected-dev
  libhwloc-dev libisal-dev libxsimd-dev libeigen3-dev libdnnl-dev liburing-dev libxxhash-dev libutf8proc-dev zlib1g-dev libyaml-dev libedit-dev libcpp-httplib-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev libbenchmark-dev
)
dev_packages=(clang clang-format clang-tidy libomp-dev gcovr python3-torch python3-venv fio abigail-tools valgrind)
# 68 MB with what they need beside python3-torch. Without them the tests that need them are skipped.
optional_dev_packages=(libtorch-dev)
optional=()

case "${1:-}" in
  '') ;;
  --dev) packages+=("${dev_packages[@]}") optional=("${optional_dev_packages[@]}") ;;
  *) echo "usage: scripts/setup.sh [--dev]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system; the build needs the contents of these packages: ${packages[*]}" >&2
  exit 1
fi

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
missing=() missing_optional=()
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
for package in "${optional[@]}"; do
  if ! is_installed "$package"; then missing_optional+=("$package"); fi
done
if (( ${#missing[@]} + ${#missing_optional[@]} == 0 )); then
  echo "setup: all $((${#packages[@]} + ${#optional[@]})) packages are installed"
  exit 0
fi

as_root=()
if (( EUID != 0 )); then
  # -n: a script that waits at a password prompt looks as if it hangs.
  if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  elif (( ${#missing[@]} == 0 )); then
    echo "setup: all ${#packages[@]} packages are installed, but not the optional ${missing_optional[*]}"
    exit 0
  else
    echo "setup: missing: ${missing[*]}" >&2
    echo "setup: run as root: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

"${as_root[@]}" apt-get update -qq
for package in "${missing_optional[@]}"; do
  if apt-cache show "$package" >/dev/null 2>&1; then missing+=("$package"); else echo "setup: $package is not available; going on without it"; fi
done
(( ${#missing[@]} > 0 )) || exit 0
echo "setup: installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
