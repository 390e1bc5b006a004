#!/usr/bin/env bash
# Checks strata on a machine with a GPU: the tests labelled gpu, and the machine's rates. Where there is no GPU each
# part says so.
#   scripts/gpu_verify.sh [--build DIR] [--out DIR]   builds the preset cuda, or takes the build in DIR
#   scripts/gpu_verify.sh --pack DIR                  builds, and copies programs and libraries to DIR, which --build
#                                                     takes on a machine that has neither compiler nor packages
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

build='' out=runs/gpu_verify pack=''
while (( $# )); do
  case $1 in
    --build) build=${2:?--build takes a folder}; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    --pack) pack=${2:?--pack takes a folder}; shift 2 ;;
    *) echo 'usage: scripts/gpu_verify.sh [--build DIR] [--out DIR] [--pack DIR]' >&2; exit 2 ;;
  esac
done

if [[ -z $build ]]; then
  build=build/cuda
  step set-up scripts/setup.sh
  # Named, for a folder that was configured without them before keeps that.
  step configure --log build/cuda/configure.log cmake --preset cuda -DSTRATA_BUILD_TESTS=ON -DSTRATA_BUILD_BENCH=ON
  step build --log build/cuda/build.log cmake --build --preset cuda -j "$jobs"
fi
# Tests as paths below the build's folder: ctest's own files hold absolute paths, which do not travel.
mapfile -t tests <"$build/gpu_tests.txt"
programs=("${tests[@]}" bench/machine_rates cli/strata)

copy_programs() {
  mkdir -p "$pack/lib"
  cp "$build/gpu_tests.txt" "$pack/"
  for program in "${programs[@]}"; do
    install -D --strip "$build/$program" "$pack/$program"
    # The C library and its loader belong to the machine; everything else comes along.
    ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
      grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -n -t "$pack/lib"
  done
}
if [[ -n $pack ]]; then
  step pack copy_programs
  du -sh "$pack"
  exit 0
fi
if [[ -d $build/lib ]]; then
  LD_LIBRARY_PATH=$(realpath "$build/lib")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi

mkdir -p "$out"
failed=()
part() {
  local name=$1
  shift
  step "$name" "$@" || failed+=("$name")
}
to_file() {
  local file=$1
  shift
  "$@" >"$file"
}

if command -v nvidia-smi >/dev/null && nvidia-smi -L; then
  nvidia-smi -q >"$out/nvidia-smi.txt"
else
  echo 'gpu_verify: no GPU here; what needs one is skipped'
fi
for test in "${tests[@]}"; do
  log=$out/$(basename "$test").log
  part "$test" --log "$log" "$build/$test" --gtest_brief=0
  # "what ran" and "what was skipped" are GoogleTest's own last lines.
  grep -hE '^\[  (PASSED|SKIPPED|FAILED) ' "$log" | grep -E '[0-9]+ tests?' || true
done
part rates to_file "$out/machine_rates.json" "$build/bench/machine_rates"
part profile to_file "$out/profile.json" "$build/cli/strata" bench --json --nvme-dir "$out/nvme" --out "$out/machine.toml"
part doctor "$build/cli/strata" doctor

printf 'gpu_verify: results are in %s; failed: %s\n' "$out" "${failed[*]:-none}"
(( ${#failed[@]} == 0 ))
