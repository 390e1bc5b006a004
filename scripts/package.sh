#!/usr/bin/env bash
# Builds the Debian package of the command, the libraries and their headers.
#   scripts/package.sh [FOLDER]     where the .deb goes (default: dist)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
cmake --preset release -B build/package -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib -DSTRATA_WITH_CUDA="${STRATA_WITH_CUDA:-OFF}" \
  -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF
cmake --build build/package
rm -f build/package/strata_*.deb
(cd build/package && cpack)
mv build/package/strata_*.deb "$out"/
ls -l "$out"/strata_*.deb
