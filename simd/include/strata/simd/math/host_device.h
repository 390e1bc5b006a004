#pragma once

/// Marks a function of the shared scalar mathematics. Under nvcc it is compiled for host and device. On the
/// host it is always inlined, so that the linker cannot merge copies compiled for different instruction sets.
#ifdef __CUDACC__
#define STRATA_HD __host__ __device__ __forceinline__
#else
#define STRATA_HD inline __attribute__((always_inline))
#endif

/// Placed before a loop of up to eight iterations that must be fully unrolled.
#ifdef __CUDACC__
#define STRATA_UNROLL_8 _Pragma("unroll")
#else
#define STRATA_UNROLL_8 _Pragma("GCC unroll 8")
#endif
