#!/usr/bin/env bash
# Packs a build and what scripts/gpu_verify.sh needs beside it into one file, which unpacks itself if there is
# bash, and either tar with xz or python3. Called by scripts/gpu_verify.sh --pack.
#   scripts/gpu_verify/pack.sh BUILD FILE
set -euo pipefail
[[ $# == 2 ]] || { echo 'usage: scripts/gpu_verify/pack.sh BUILD FILE' >&2; exit 2; }
build=$1 file=$2 max_bytes=$((40 << 20))
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
fail() { printf 'gpu_verify: %s\n' "$*" >&2; exit 1; }
command -v xz >/dev/null || fail 'xz is missing: on Debian, apt-get install xz-utils'
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
packed=$stage/strata

# Tests are paths relative to the build folder: ctest's own files contain absolute paths, which are wrong on
# another machine.
mapfile -t programs <"$build/gpu_tests.txt"
programs+=(bench/machine_rates bench/kernel_rates cli/strata capi/libstrata.so)
mkdir -p "$packed/build/lib" "$packed/scripts" "$packed/examples/data"
for program in "${programs[@]}"; do
  [[ -f $build/$program ]] || fail "$build/$program is not built"
  install -D --strip "$build/$program" "$packed/build/$program"
  # The C library and its loader come from the target machine; all other libraries are packed.
  ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -L -n -t "$packed/build/lib"
done
cp "$build/gpu_tests.txt" "$packed/build/"
git rev-parse --short HEAD >"$packed/build/commit.txt" 2>/dev/null || echo unknown >"$packed/build/commit.txt"
cp -r scripts/gpu_verify scripts/gpu_verify.sh scripts/gpu_peers.py scripts/gpu_trainer.py scripts/steps.sh "$packed/scripts/"
cp --parents -r bindings/python/src bindings/python/tests/{test_cuda,torch_model}.py "$packed/"
rm -rf "$packed/scripts/gpu_verify/__pycache__"
cp -r examples/data/austen "$packed/examples/data/"

# Programs contain much of the same code, tens of MiB apart: the dictionary covers all of them.
tar -C "$stage" --sort=name --owner=0 --group=0 -cf - strata | xz --format=xz -6e --lzma2=preset=6e,dict=192MiB -c >"$stage/payload"
digest=$(sha256sum <"$stage/payload")
{
  sed "s/@COMMIT@/$(cat "$packed/build/commit.txt")/g; s/@DIGEST@/${digest%% *}/g" scripts/gpu_verify/unpack.sh
  cat "$stage/payload"
} >"$stage/file"
bytes=$(stat -c %s "$stage/file")
(( bytes <= max_bytes )) || fail "$file would have $bytes bytes, but at most $max_bytes are allowed: build for one architecture with --arch"
chmod +x "$stage/file"
mkdir -p "$(dirname "$file")"
mv "$stage/file" "$file"
printf '%s: %d bytes of %d programs and %d libraries, %d bytes unpacked\n' "$file" "$bytes" "${#programs[@]}" \
  "$(find "$packed/build/lib" -type f | wc -l)" "$(du -sb "$packed" | cut -f 1)"
