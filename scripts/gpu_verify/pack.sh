#!/usr/bin/env bash
# Makes one file of a build and what scripts/gpu_verify.sh needs beside it, which unpacks itself where there is bash, tar and
# xz, or python3. Called by scripts/gpu_verify.sh --pack.
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

# Tests as paths below the build's folder: ctest's own files hold absolute paths, which do not travel.
mapfile -t programs <"$build/gpu_tests.txt"
programs+=(bench/machine_rates cli/strata)
mkdir -p "$packed/build/lib" "$packed/scripts" "$packed/examples/data"
for program in "${programs[@]}"; do
  [[ -f $build/$program ]] || fail "$build/$program is not built"
  install -D --strip "$build/$program" "$packed/build/$program"
  # The C library and its loader belong to the machine; everything else comes along.
  ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -L -n -t "$packed/build/lib"
done
cp "$build/gpu_tests.txt" "$packed/build/"
git rev-parse --short HEAD >"$packed/build/commit.txt" 2>/dev/null || echo unknown >"$packed/build/commit.txt"
cp -r scripts/gpu_verify scripts/gpu_verify.sh scripts/gpu_peers.py scripts/steps.sh "$packed/scripts/"
rm -rf "$packed/scripts/gpu_verify/__pycache__"
cp -r examples/data/austen "$packed/examples/data/"

# Programs hold the same code again and again, tens of MiB apart: the dictionary spans them all.
tar -C "$stage" --sort=name --owner=0 --group=0 -cf - strata | xz --format=xz -6e --lzma2=preset=6e,dict=192MiB -c >"$stage/payload"
digest=$(sha256sum <"$stage/payload")
{
  sed "s/@COMMIT@/$(cat "$packed/build/commit.txt")/g; s/@DIGEST@/${digest%% *}/g" scripts/gpu_verify/unpack.sh
  cat "$stage/payload"
} >"$stage/file"
bytes=$(stat -c %s "$stage/file")
(( bytes <= max_bytes )) || fail "$file would have $bytes bytes, of at most $max_bytes: name one --arch, or strip what it need not hold"
chmod +x "$stage/file"
mkdir -p "$(dirname "$file")"
mv "$stage/file" "$file"
printf '%s: %d bytes of %d programs and %d libraries, %d bytes unpacked\n' "$file" "$bytes" "${#programs[@]}" \
  "$(find "$packed/build/lib" -type f | wc -l)" "$(du -sb "$packed" | cut -f 1)"
