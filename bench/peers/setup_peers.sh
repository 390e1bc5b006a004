#!/usr/bin/env bash
# Sets up the environment of adamw_peers.py, optimizer_ulps.py and torch_ranks.py: DIR/venv with the newest
# torch and transformers, and with DeepSpeed and its CPU Adam, compiled for this machine's CPU against that
# torch. pip uses the index it is configured with. The torch of PyPI includes CUDA libraries, about 6 GB on
# disk, and needs no GPU.
#   bench/peers/setup_peers.sh DIR             keeps what is already installed; logs are in DIR
#   bench/peers/setup_peers.sh DIR --debian    also installs Debian's python3-torch for /usr/bin/python3
# The venv uses $PYTHON, or python3 if it is not set.
set -euo pipefail

usage() { echo 'usage: bench/peers/setup_peers.sh DIR [--debian]' >&2; exit 2; }
fail() { printf 'setup_peers: %s\n' "$*" >&2; exit 1; }

dir='' debian=0
for argument in "$@"; do
  case $argument in
    --debian) debian=1 ;;
    -*) usage ;;
    *) [[ -z $dir ]] || usage; dir=$argument ;;
  esac
done
[[ -n $dir ]] || usage
mkdir -p "$dir" || fail "cannot create $dir"
dir=$(realpath "$dir")
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/steps.sh"
venv=$dir/venv python=$dir/venv/bin/python

has_torch() { "$python" -c 'import torch' 2>/dev/null; }
has_transformers() { "$python" -c 'import transformers' 2>/dev/null; }
has_deepspeed() { DS_ACCELERATOR=cpu "$python" -c 'import torch, deepspeed.ops.adam.cpu_adam_op' >/dev/null 2>&1; }

if [[ ! -x $python ]]; then
  base=${PYTHON:-python3}
  command -v "$base" >/dev/null || fail "$base is missing"
  "$base" -c 'import ensurepip, venv' 2>/dev/null || fail "$base cannot create a venv: on Debian, apt-get install python3-venv"
  step venv "$base" -m venv "$venv"
fi

if ! has_torch; then
  free_gib=$(($(df --output=avail -B1 "$dir" | tail -n 1) >> 30))
  (( free_gib >= 10 )) || fail "$dir has $free_gib GiB free; torch with CUDA's libraries needs about 10 while it is installed"
  # DeepSpeed's setup.py runs in the venv and needs the other packages.
  step torch --log "$dir/torch.log" "$python" -m pip install --upgrade torch numpy setuptools wheel packaging
  has_torch || fail "torch is installed in $venv but does not import: $("$python" -c 'import torch' 2>&1 | tail -n 1)"
fi

if ! has_transformers; then
  step transformers --log "$dir/transformers.log" "$python" -m pip install transformers
  has_transformers || fail "transformers is installed in $venv but does not import: $("$python" -c 'import transformers' 2>&1 | tail -n 1)"
fi

if ! has_deepspeed; then
  command -v c++ >/dev/null || fail 'a C++ compiler is missing, which DeepSpeed needs: on Debian, apt-get install g++'
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [[ -f $headers/Python.h ]] || fail "$headers/Python.h is missing: on Debian, apt-get install python3-dev"
  # Without cache and build isolation, because a wheel built against another torch does not load. ninja is not
  # needed, since nothing is compiled at run time.
  step deepspeed --log "$dir/deepspeed.log" env DS_ACCELERATOR=cpu DS_BUILD_CPU_ADAM=1 \
    "$python" -m pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps deepspeed
  step 'deepspeed needs' --log "$dir/deepspeed-needs.log" "$python" -m pip install deepspeed
  has_deepspeed || fail "DeepSpeed's CPU Adam does not load; the compiler's output is in $dir/deepspeed.log: $(
    DS_ACCELERATOR=cpu "$python" -c 'import torch, deepspeed.ops.adam.cpu_adam_op' 2>&1 | tail -n 1)"
fi

if (( debian )) && ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  command -v apt-get >/dev/null || fail '--debian: there is no apt-get here'
  (( EUID == 0 )) || fail '--debian: run as root, or: apt-get install --no-install-recommends python3-torch'
  step 'package lists' apt-get update -qq
  step python3-torch --log "$dir/debian.log" \
    env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch
fi

says() { "$1" -c "import torch; print('torch', torch.__version__)" 2>/dev/null || echo "$2"; }
printf '%s: %s, ' "$python" "$(says "$python" 'no torch')"
"$python" -c 'from importlib.metadata import version; print("transformers", version("transformers") + ", deepspeed", version("deepspeed"))'
printf '/usr/bin/python3: %s\n' "$(says /usr/bin/python3 'no torch; apt-get install python3-torch, or --debian, installs it')"
