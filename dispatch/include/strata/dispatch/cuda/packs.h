#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <strata/dispatch/cuda/lanes.h>

/// Elements that a thread of a GPU loads and stores with one instruction of 16 bytes. Compiled for the host,
/// too, for tests.
namespace strata::dispatch {

inline constexpr std::size_t kPackBytes = 16;

template <class T>
struct Pack {
  static constexpr int kSize = static_cast<int>(kPackBytes / sizeof(T));
  T value[kSize];
};
template <class T>
STRATA_DEVICE_INLINE Pack<T> load_pack(const T* from) {
  Pack<T> pack;
#ifdef __CUDACC__
  const uint4 bytes = *reinterpret_cast<const uint4*>(from);
  std::memcpy(&pack, &bytes, kPackBytes);
#else
  std::memcpy(&pack, from, kPackBytes);
#endif
  return pack;
}
template <class T>
STRATA_DEVICE_INLINE void store_pack(T* into, const Pack<T>& pack) {
#ifdef __CUDACC__
  uint4 bytes;
  std::memcpy(&bytes, &pack, kPackBytes);
  *reinterpret_cast<uint4*>(into) = bytes;
#else
  std::memcpy(into, &pack, kPackBytes);
#endif
}
/// Whether packs at these addresses and at multiples of kPackBytes behind them can be loaded.
template <class... T>
bool are_pack_aligned(const T*... at) {
  return (... && (reinterpret_cast<std::uintptr_t>(at) % kPackBytes == 0));
}

}  // namespace strata::dispatch
