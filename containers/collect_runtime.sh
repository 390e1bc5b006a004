#!/usr/bin/env bash
# Collects what an installed strata needs to run, for the last stage of a container: programs, shared libraries and the
# texts of presets, and a list of the Debian packages whose libraries they are linked with.
#   containers/collect_runtime.sh PREFIX OUT
set -euo pipefail
[[ $# == 2 ]] || { echo 'usage: containers/collect_runtime.sh PREFIX OUT' >&2; exit 2; }
prefix=$1 out=$2
fail() { printf 'collect_runtime: %s\n' "$*" >&2; exit 1; }
[[ -x $prefix/bin/strata ]] || fail "$prefix has no bin/strata: install strata there first"

mkdir -p "$out/strata/lib"
cp -a "$prefix/bin" "$prefix/share" "$out/strata/"
# The C library, and the module that is loaded for ranks over MPI.
find "$prefix/lib" -maxdepth 1 -name 'libstrata.so*' -exec cp -a -t "$out/strata/lib" {} +
if [[ -e $prefix/lib/strata/libstrata_mpi.so ]]; then
  install -D "$prefix/lib/strata/libstrata_mpi.so" "$out/strata/lib/strata/libstrata_mpi.so"
fi

mapfile -t objects < <(find "$out/strata/bin" "$out/strata/lib" -type f \( -perm -u+x -o -name '*.so*' \))
mapfile -t libraries < <(ldd "${objects[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u)
for library in "${libraries[@]}"; do
  [[ $library == "$prefix"/* || $library == "$out"/* ]] && continue
  # dpkg knows a library by the name under which its package has it, which may be that before /lib became /usr/lib.
  found=$(dpkg-query -S "$(realpath "$library")" "/usr$library" "$library" 2>/dev/null | head -n 1 | cut -d : -f 1) || true
  [[ -n $found ]] || fail "$library belongs to no package"
  echo "$found"
done | sort -u >"$out/packages"
# mpirun, for ranks that are processes.
if [[ -e $out/strata/lib/strata/libstrata_mpi.so ]]; then echo openmpi-bin >>"$out/packages"; fi
printf 'collect_runtime: %d packages, %s\n' "$(wc -l <"$out/packages")" "$(du -sh "$out/strata" | cut -f 1)"
