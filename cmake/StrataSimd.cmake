# One translation unit per instruction set for each SIMD kernel (src/NAME_kernels.h). The unit only includes
# the kernel, inside a namespace named after the instruction set, and only it is compiled with the flags of
# that set.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(STRATA_ISAS scalar sse42 avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(STRATA_ISAS scalar neon)
else()
  set(STRATA_ISAS scalar)
endif()
# The two sets that few CPUs have are compiled with less effort: at -O3 they take the compiler two to four times as long
# as AVX2. Where there is no other set, scalar code is optimised like the rest.
set(STRATA_ISA_FLAGS_scalar -O1)
if(STRATA_ISAS STREQUAL "scalar")
  set(STRATA_ISA_FLAGS_scalar "")
endif()
set(STRATA_ISA_FLAGS_sse42 -msse4.2 -O2)
# The compiler makes no fused multiply-adds of its own accord (-ffp-contract=off).
set(STRATA_ISA_FLAGS_avx2 -mavx2 -mf16c -mfma)
set(STRATA_ISA_FLAGS_avx512 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl)
set(STRATA_ISA_FLAGS_neon "")  # every AArch64 CPU has NEON

# Forced inlining creates thousands of stack temporaries; instrumenting each takes the compiler minutes and
# gigabytes. Heap accesses, where errors of a kernel occur, stay checked, by calls: inline checks take the
# compiler two to three times as long.
set(STRATA_SIMD_SANITIZE_FLAGS "")
if(STRATA_SANITIZE MATCHES "address")
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    list(APPEND STRATA_SIMD_SANITIZE_FLAGS -mllvm -asan-stack=0 -mllvm -asan-instrumentation-with-call-threshold=0)
  else()
    list(APPEND STRATA_SIMD_SANITIZE_FLAGS --param=asan-stack=0 --param=asan-instrumentation-with-call-threshold=0)
  endif()
endif()
if(STRATA_SANITIZE MATCHES "undefined")
  list(APPEND STRATA_SIMD_SANITIZE_FLAGS -fno-sanitize=undefined)
endif()

# strata_simd_kernels(MODULE KERNEL...): call after strata_add_module(MODULE).
function(strata_simd_kernels module)
  foreach(kernel IN LISTS ARGN)
    foreach(isa IN LISTS STRATA_ISAS)
      set(unit "${CMAKE_CURRENT_BINARY_DIR}/simd/${kernel}_${isa}.cpp")
      file(CONFIGURE OUTPUT "${unit}" CONTENT "#define STRATA_ISA ${isa}
#define STRATA_ISA_IS_${isa} 1
#include \"${kernel}_kernels.h\"
")
      # sqrtf may set errno, which prevents GCC from emitting a plain square root; nothing here reads errno.
      # No kernel throws, and without exceptions there is no shared personality symbol. GCC 12 warns in its
      # own AVX-512 header.
      set_source_files_properties("${unit}" PROPERTIES
        COMPILE_OPTIONS "${STRATA_ISA_FLAGS_${isa}};-fno-math-errno;-fno-exceptions;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>;${STRATA_SIMD_SANITIZE_FLAGS}")
      target_sources(strata_${module} PRIVATE "${unit}")
    endforeach()
  endforeach()
  # Only an optimised build inlines everything; sanitizers add their own helper functions.
  if(STRATA_BUILD_TESTS AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT STRATA_SANITIZE AND NOT STRATA_COVERAGE)
    add_test(NAME ${module}.NoWeakSymbolLeavesItsInstructionSet
      COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DISAS=${STRATA_ISAS}" "-DOBJECTS=$<TARGET_OBJECTS:strata_${module}>"
        -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CheckWeakSymbols.cmake")
  endif()
endfunction()
