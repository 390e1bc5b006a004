#!/usr/bin/env bash
# Downloads the headers of NVIDIA's cudnn-frontend (MIT licence) to DIR/include, by default
# build/cudnn-frontend/include, where CMake looks for them. With these and cuDNN's own headers, a build has
# train.attention_backend=cudnn. pip fetches them from PyPI and installs nothing. Does nothing if this version
# is already there.
#   scripts/get_cudnn_frontend.sh [DIR]
set -euo pipefail

version=1.32.0
root=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
dir=${1:-$root/build/cudnn-frontend}
fail() { printf 'get_cudnn_frontend: %s\n' "$*" >&2; exit 1; }

[[ $(cat "$dir/version" 2>/dev/null) != "$version" ]] || exit 0
command -v python3 >/dev/null || fail 'python3 is missing'
python3 -m pip --version >/dev/null 2>&1 || fail 'pip is missing: on Debian, apt-get install python3-pip'
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
# The wheels of all systems contain the same headers.
python3 -m pip download --quiet --retries 1 --timeout 20 --no-deps --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
  --dest "$temporary" "nvidia-cudnn-frontend==$version" >"$temporary/log" 2>&1 || fail "pip: $(tail -n 1 "$temporary/log")"
python3 - "$temporary"/*.whl "$temporary" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
[[ -f $temporary/include/cudnn_frontend.h ]] || fail "the wheel of $version has no include/cudnn_frontend.h"
mkdir -p "$dir"
rm -rf "$dir/include" "$dir/version"
mv "$temporary/include" "$dir/"
echo "$version" >"$dir/version"  # written last, so that an interrupted download is repeated
