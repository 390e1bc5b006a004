#!/usr/bin/env bash
# Builds as static libraries what Debian has as shared ones alone, from the sources of the packages that are installed
# here, so that a wheel or a tarball needs the C library and nothing else of the system it runs on.
#   scripts/wheel/dependencies.sh PREFIX
# ONEDNN_SOURCE: a folder with oneDNN's sources of the version of libdnnl-dev, where apt's mirror lacks them.
set -euo pipefail
[[ $# == 1 && $1 != -* ]] || { echo 'usage: scripts/wheel/dependencies.sh PREFIX' >&2; exit 2; }
prefix=$(realpath -m "$1")
work=$prefix/work
mkdir -p "$prefix/lib" "$prefix/include" "$prefix/share/licenses" "$work/lists/partial" "$work/built"
export CFLAGS='-O2 -ffunction-sections -fdata-sections' CXXFLAGS='-O2 -ffunction-sections -fdata-sections -w'

# Debian's own archives of this machine's apt, as archives of sources.
apt-cache policy | awk '
  / Packages$/ { uri = $2; split($3, part, "/") }
  /release .*o=Debian,/ && uri { print "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", uri, part[1], part[2]; uri = "" }
' | sort -u >"$work/sources.list"
apt_options=(-qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
  -o "APT::Sandbox::User=$(id -un)" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=")
[[ -n $(find "$work/lists" -name '*Sources*' -print -quit) ]] || apt-get "${apt_options[@]}" update

# source_of PACKAGE BINARY: the folder of the sources of the version of BINARY that is installed.
source_of() {
  local folder=$work/source/$1
  if [[ ! -e $folder/debian/copyright ]]; then
    rm -rf "$folder" "$work/got" && mkdir -p "$work/got" "$work/source"
    (cd "$work/got" && apt-get "${apt_options[@]}" source "$1=$(dpkg-query -W -f '${source:Version}' "$2")" >/dev/null) &&
      mv "$work"/got/*/ "$folder" && cp "$folder/debian/copyright" "$prefix/share/licenses/$1" || return 1
  fi
  echo "$folder"
}

# by_cmake NAME SOURCE TARGET LIBRARY OPTION...: builds TARGET and keeps LIBRARY, a path in the build folder. The headers
# are those of Debian's -dev package.
by_cmake() {
  local name=$1 source=$2 target=$3 library=$4
  shift 4
  cmake -S "$source" -B "$work/built/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON "$@"
  cmake --build "$work/built/$name" --target "$target"
  cp "$work/built/$name"/$library "$prefix/lib/"
}

# Matrix products are all that strata calls. The rest of oneDNN is nine tenths of its 40 MB, and of the time to compile it.
prune_onednn() {
  cd "$1/src/cpu"
  find rnn reorder x64/lrn x64/prelu x64/rnn x64/shuffle -name '*.cpp' -delete
  find . -maxdepth 1 -name '*.cpp' \( -name 'gemm_*' -o -name 'n[chs]*' -o -name 'ref_*' -o -name 'simple_*' -o -name '*_utils.cpp' \) \
    ! -name ref_eltwise.cpp ! -name gemm_inner_product_utils.cpp ! -name binary_injector_utils.cpp ! -name zero_point_utils.cpp -delete
  find x64 -maxdepth 1 -name '*.cpp' ! -name amx_tile_configure.cpp ! -name 'cpu_*' ! -name jit_avx512_core_bf16cvt.cpp \
    ! -name jit_transpose_utils.cpp ! -name jit_gemm_inner_product_utils.cpp -delete
  cat >reorder/cpu_reorder.cpp <<'C'
#include "cpu/cpu_engine.hpp"
namespace dnnl { namespace impl { namespace cpu {
const impl_list_item_t *cpu_engine_impl_list_t::get_reorder_implementation_list(const memory_desc_t *, const memory_desc_t *) {
  static const impl_list_item_t none[] = {nullptr};
  return none;
}
}}}
C
  # Eighty short files with the same long headers become three, each with the macros of its own.
  local kind file
  for kind in s8x8s32 f32 bf16; do
    for file in x64/gemm/"$kind"/*_autogen.cpp; do
      mv "$file" "${file%.cpp}.inc"
      echo "#include \"cpu/${file%.cpp}.inc\""
      sed -n 's/^#define \([A-Za-z_0-9]*\).*/#undef \1/p' "${file%.cpp}.inc" | sort -u
    done >all_kern_autogen
    mv all_kern_autogen "x64/gemm/$kind/all_kern_autogen.cpp"
  done
}
onednn() {
  local source=${ONEDNN_SOURCE:-}
  if [[ -z $source ]]; then
    source=$(source_of onednn libdnnl-dev) || {
      echo 'dependencies: apt has no sources of oneDNN; name a folder that has those of the version of libdnnl-dev: ONEDNN_SOURCE=DIR' >&2
      exit 1
    }
  else
    cp /usr/share/doc/libdnnl-dev/copyright "$prefix/share/licenses/onednn"
  fi
  rm -rf "$work/onednn" && cp -r "$source" "$work/onednn" && (prune_onednn "$work/onednn")
  # strata runs it on threads of its own, one call on one thread.
  CXXFLAGS="$CXXFLAGS -fvisibility=hidden" cmake -S "$work/onednn" -B "$work/built/onednn" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DDNNL_LIBRARY_TYPE=STATIC \
    -DDNNL_CPU_RUNTIME=SEQ -DDNNL_GPU_RUNTIME=NONE -DDNNL_ENABLE_PRIMITIVE=MATMUL -DDNNL_ENABLE_WORKLOAD=INFERENCE \
    -DDNNL_VERBOSE=OFF -DDNNL_ENABLE_JIT_PROFILING=OFF -DDNNL_ENABLE_ITT_TASKS=OFF -DDNNL_BUILD_EXAMPLES=OFF -DDNNL_BUILD_TESTS=OFF
  cmake --build "$work/built/onednn" --target install
}

hwloc() {
  local source
  source=$(source_of hwloc libhwloc-dev)
  mkdir -p "$work/built/hwloc" && cd "$work/built/hwloc"
  [[ -e Makefile ]] || "$source/configure" --prefix="$prefix" --enable-static --disable-shared --with-pic --disable-plugins --disable-libxml2 \
    --disable-libudev --disable-pci --disable-opencl --disable-cuda --disable-nvml --disable-rsmi --disable-levelzero --disable-gl --disable-cairo
  make -C include install
  make -C hwloc install
  make install-hwlocpkgconfigDATA
  sed -i '/^Libs.private:/d' "$prefix/lib/pkgconfig/hwloc.pc"  # parts of the C library, which stays shared
}

# Its checksums alone, which only nasm assembles.
isal() {
  local source
  command -v nasm >/dev/null || { echo 'dependencies: isa-l needs nasm: apt-get install nasm' >&2; exit 1; }
  source=$(source_of libisal libisal-dev)
  rm -rf "$work/built/isal" && cp -r "$source" "$work/built/isal" && cd "$work/built/isal"
  make -f Makefile.unx units=crc lib
  cp bin/isa-l.a "$prefix/lib/libisal.a"
  sed "s|^libdir=.*|libdir=$prefix/lib|" "$(pkg-config --variable=libdir libisal)/pkgconfig/libisal.pc" >"$prefix/lib/pkgconfig/libisal.pc"
}

# In one header, without TLS and compression, whose libraries are larger than the rest.
httplib() {
  local source version
  source=$(source_of cpp-httplib libcpp-httplib-dev)
  version=$(sed -n 's/^#define CPPHTTPLIB_VERSION "\(.*\)"/\1/p' "$source/httplib.h")
  cp "$source/httplib.h" "$prefix/include/"
  printf 'Name: cpp-httplib\nDescription: HTTP library in a header\nVersion: %s\nCflags: -I%s\n' "$version" "$prefix/include" \
    >"$prefix/lib/pkgconfig/cpp-httplib.pc"
}

for library in fmtlib:libfmt-dev spdlog:libspdlog-dev; do source_of "${library%:*}" "${library#*:}"; done
[[ -e $prefix/lib/libfmt.a ]] || by_cmake fmt "$work/source/fmtlib" fmt libfmt.a -DFMT_TEST=OFF -DFMT_DOC=OFF
[[ -e $prefix/lib/libspdlog.a ]] || by_cmake spdlog "$work/source/spdlog" spdlog libspdlog.a -DSPDLOG_FMT_EXTERNAL=ON
[[ -e $prefix/lib/libhwloc.a ]] || (hwloc)
[[ -e $prefix/lib/libisal.a ]] || (isal)
httplib
[[ -e $prefix/lib/libdnnl.a ]] || onednn
# Debian has static libraries of these packages.
for package in libxxhash-dev libutf8proc-dev liburing-dev libstdc++-12-dev nlohmann-json3-dev libtomlplusplus-dev \
  libcli11-dev libexpected-dev libxsimd-dev libeigen3-dev; do
  cp "/usr/share/doc/$package/copyright" "$prefix/share/licenses/${package%-dev}"
done
