# strata_cuda_kernels(MODULE SOURCE...): adds .cu files to a module. Call after strata_add_module(MODULE).
function(strata_cuda_kernels module)
  set(objects strata_${module}_cuda)
  add_library(${objects} OBJECT ${ARGN})
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${objects} PRIVATE include src)
  # CMake 3.25 cannot set C++20 for CUDA 13. FMA contraction is off, since the host rounds multiplications and
  # additions separately. A switch that lacks an enumerator would fall through to a wrong kernel.
  target_compile_options(${objects} PRIVATE -std=c++20 --fmad=false --expt-relaxed-constexpr "SHELL:-Werror all-warnings"
    -Xcompiler=-Werror=switch)
  target_link_libraries(${objects} PRIVATE strata::simd strata::dispatch strata::runtime_cuda)
  target_sources(strata_${module} PRIVATE $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(strata_${module} PRIVATE $<BUILD_INTERFACE:strata::runtime_cuda> CUDA::cudart_static ${CMAKE_DL_LIBS})
endfunction()
