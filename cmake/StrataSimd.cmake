# One translation unit per instruction set for each SIMD kernel (src/NAME_kernels.h): the unit includes nothing but the
# kernel, inside a namespace named after the set, and is the only thing compiled with that set's flags.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(STRATA_ISAS scalar sse42 avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(STRATA_ISAS scalar neon)
else()
  set(STRATA_ISAS scalar)
endif()
set(STRATA_ISA_FLAGS_scalar "")
set(STRATA_ISA_FLAGS_sse42 -msse4.2)
set(STRATA_ISA_FLAGS_avx2 -mavx2 -mf16c)
set(STRATA_ISA_FLAGS_avx512 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl)
set(STRATA_ISA_FLAGS_neon "")  # every AArch64 has it

# Forced inlining leaves thousands of stack temporaries, and checking each takes the compiler minutes and gigabytes.
# Heap accesses, which is where a kernel can go wrong, stay checked: by calls, for checks in place take the compiler
# twice to thrice as long.
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

# strata_simd_kernels(MODULE KERNEL...): after strata_add_module(MODULE).
function(strata_simd_kernels module)
  foreach(kernel IN LISTS ARGN)
    foreach(isa IN LISTS STRATA_ISAS)
      set(unit "${CMAKE_CURRENT_BINARY_DIR}/simd/${kernel}_${isa}.cpp")
      file(CONFIGURE OUTPUT "${unit}" CONTENT "#define STRATA_ISA ${isa}
#define STRATA_ISA_IS_${isa} 1
#include \"${kernel}_kernels.h\"
")
      # sqrtf may set errno, which keeps GCC from a plain square root; nothing here reads errno. No kernel throws, and
      # without exceptions no shared personality symbol appears. GCC 12 warns inside its own AVX-512 header.
      set_source_files_properties("${unit}" PROPERTIES
        COMPILE_OPTIONS "${STRATA_ISA_FLAGS_${isa}};-fno-math-errno;-fno-exceptions;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>;${STRATA_SIMD_SANITIZE_FLAGS}")
      target_sources(strata_${module} PRIVATE "${unit}")
    endforeach()
  endforeach()
  # Only an optimised build inlines everything; a sanitizer adds helpers of its own.
  if(STRATA_BUILD_TESTS AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT STRATA_SANITIZE AND NOT STRATA_COVERAGE)
    add_test(NAME ${module}.NoWeakSymbolLeavesItsInstructionSet
      COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DISAS=${STRATA_ISAS}" "-DOBJECTS=$<TARGET_OBJECTS:strata_${module}>"
        -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CheckWeakSymbols.cmake")
  endif()
endfunction()
