// The part of DLPack's C interface that is read here (dmlc/dlpack, versions 0.2 to 1.x): its layout is fixed.
#pragma once

#include <cstdint>

namespace strata::capi::dlpack {

enum : std::int32_t { kCpu = 1, kCudaHost = 3, kRocmHost = 11 };
enum : std::uint8_t { kFloat = 2, kBfloat = 4 };
inline constexpr std::uint64_t kReadOnly = 1;

struct Tensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t n_dims;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* dims;
  std::int64_t* strides;  // in elements; null: row-major
  std::uint64_t byte_offset;
};
static_assert(sizeof(Tensor) == 48);

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

}  // namespace strata::capi::dlpack
