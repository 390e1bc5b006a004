#!/usr/bin/env bash
# Sets up the environment of the peers' programs in this folder and of scripts/torch_check.sh: DIR/venv with the
# newest torch, transformers, accelerate, PEFT and bitsandbytes, with DeepSpeed and its CPU Adam, compiled for this
# machine's CPU against that torch, and with torchao, galore-torch, lm_eval, gguf, xllamacpp (llama.cpp), trl and
# openai. pip uses the index it is configured with. The torch of PyPI includes CUDA libraries, about 6 GB on disk, and
# needs no GPU.
#   bench/peers/setup_peers.sh DIR             keeps what is already installed; logs are in DIR
#   bench/peers/setup_peers.sh DIR --debian    also installs Debian's python3-torch for /usr/bin/python3
#   bench/peers/setup_peers.sh DIR --torch     installs torch and numpy alone
# torch is required. The other packages are optional: what could not be installed is named at the end, the rest
# is set up all the same, and the exit code is 3.
# The venv uses $PYTHON, or python3 if it is not set.
set -euo pipefail

usage() { echo 'usage: bench/peers/setup_peers.sh DIR [--debian | --torch]' >&2; exit 2; }
fail() { printf 'setup_peers: %s\n' "$*" >&2; exit 1; }

dir='' debian=0 torch_alone=0
for argument in "$@"; do
  case $argument in
    --debian) debian=1 ;;
    --torch) torch_alone=1 ;;
    -*) usage ;;
    *) [[ -z $dir ]] || usage; dir=$argument ;;
  esac
done
[[ -n $dir ]] || usage
mkdir -p "$dir" || fail "cannot create $dir"
dir=$(realpath "$dir")
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/steps.sh"
venv=$dir/venv python=$dir/venv/bin/python

imports() { DS_ACCELERATOR=cpu "$python" -c "import $1" >/dev/null 2>&1; }
why_not() { DS_ACCELERATOR=cpu "$python" -c "import $1" 2>&1 | tail -n 1; }
cpu_adam='torch, deepspeed.ops.adam.cpu_adam_op'
missing=()
absent() { missing+=("$*"); printf 'setup_peers: %s\n' "$*" >&2; }

if [[ ! -x $python ]]; then
  base=${PYTHON:-python3}
  command -v "$base" >/dev/null || fail "$base is missing"
  "$base" -c 'import ensurepip, venv' 2>/dev/null || fail "$base cannot create a venv: on Debian, apt-get install python3-venv"
  step venv "$base" -m venv "$venv"
fi

if ! imports torch; then
  free_gib=$(($(df --output=avail -B1 "$dir" | tail -n 1) >> 30))
  (( free_gib >= 10 )) || fail "$dir has $free_gib GiB free; torch with CUDA's libraries needs about 10 while it is installed"
  # DeepSpeed's setup.py runs in the venv and needs the other packages.
  step torch --log "$dir/torch.log" "$python" -m pip install --upgrade torch numpy setuptools wheel packaging
  imports torch || fail "torch is installed in $venv but does not import: $(why_not torch)"
fi

(( ! torch_alone )) || exit 0

# package NAME: installs it without replacing the torch that is there.
package() {
  imports "$1" && return
  local pinned
  pinned=$("$python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))')
  step "$1" --log "$dir/$1.log" "$python" -m pip install "$1" "$pinned" || { absent "$1 was not installed: see $dir/$1.log"; return; }
  imports "$1" || absent "$1 is installed in $venv but does not import: $(why_not "$1")"
}

deepspeed() {
  imports "$cpu_adam" && return
  command -v c++ >/dev/null || { absent 'deepspeed needs a C++ compiler: on Debian, apt-get install g++'; return; }
  local headers
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [[ -f $headers/Python.h ]] || { absent "deepspeed needs $headers/Python.h: on Debian, apt-get install python3-dev"; return; }
  # Without cache and build isolation, because a wheel built against another torch does not load. ninja is not
  # needed, since nothing is compiled at run time.
  { imports setuptools && imports wheel && imports packaging; } ||
    step 'deepspeed builds with' --log "$dir/deepspeed-tools.log" "$python" -m pip install setuptools wheel packaging ||
    { absent "deepspeed was not built: see $dir/deepspeed-tools.log"; return; }
  step deepspeed --log "$dir/deepspeed.log" env DS_ACCELERATOR=cpu DS_BUILD_CPU_ADAM=1 \
    "$python" -m pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps deepspeed &&
    step 'deepspeed needs' --log "$dir/deepspeed-needs.log" "$python" -m pip install deepspeed ||
    { absent "deepspeed was not built: see $dir/deepspeed.log"; return; }
  imports "$cpu_adam" || absent "DeepSpeed's CPU Adam does not load; the compiler's output is in $dir/deepspeed.log: $(why_not "$cpu_adam")"
}

package transformers
package accelerate
package peft
package bitsandbytes
package torchao
package galore_torch
package lm_eval
package gguf
package xllamacpp
# Its module has another name; it is built from source, which takes some minutes.
imports llama_cpp || step llama-cpp-python --log "$dir/llama_cpp.log" "$python" -m pip install llama-cpp-python ||
  absent "llama-cpp-python was not built: see $dir/llama_cpp.log"
package trl
package openai
deepspeed

if (( debian )) && ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  command -v apt-get >/dev/null || fail '--debian: there is no apt-get here'
  (( EUID == 0 )) || fail '--debian: run as root, or: apt-get install --no-install-recommends python3-torch'
  step 'package lists' apt-get update -qq
  step python3-torch --log "$dir/debian.log" \
    env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch
fi

# A copy of the versions for a reader of a log: this Python, its packages, and Debian's torch.
versions='
import importlib.metadata as metadata, sys
def version(name):
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"no {name}"
print(f"{sys.executable}: Python {sys.version.split()[0]}, " + ", ".join(map(version, sys.argv[1:])))'
"$python" -c "$versions" torch transformers accelerate deepspeed torchao galore-torch lm_eval gguf xllamacpp llama-cpp-python openai numpy
/usr/bin/python3 -c "import torch; print('/usr/bin/python3: torch', torch.__version__)" 2>/dev/null ||
  echo '/usr/bin/python3: no torch; apt-get install python3-torch, or --debian, installs it'
(( ${#missing[@]} == 0 )) || { printf 'setup_peers: absent: %s\n' "${missing[@]}" >&2; exit 3; }
