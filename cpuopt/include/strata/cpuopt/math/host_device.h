#pragma once

/// Marks a function of the shared scalar mathematics: host and device under nvcc, and always inlined on the
/// host, so that no copy compiled for one instruction set can stand in for another at link time.
#ifdef __CUDACC__
#define STRATA_HD __host__ __device__ __forceinline__
#else
#define STRATA_HD inline __attribute__((always_inline))
#endif

/// Before a loop of up to eight turns that shall be none.
#ifdef __CUDACC__
#define STRATA_UNROLL_8 _Pragma("unroll")
#else
#define STRATA_UNROLL_8 _Pragma("GCC unroll 8")
#endif
