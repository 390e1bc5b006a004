#include <strata.h>

#include <strata/runtime/str.h>

#include "c_call.h"
#include "c_struct.h"
#include "dlpack.h"

using namespace strata;
using capi::call;
using capi::write_struct;
namespace dlpack = capi::dlpack;

namespace {

constexpr std::int32_t kMaxDims = 64;

Status unsupported(const auto&... why) {
  return Status::error(Code::unsupported, str("the DLPack tensor ", why...));
}

Result<strata_dtype> dtype_of(const dlpack::Tensor& tensor) {
  if (tensor.lanes == 1 && tensor.code == dlpack::kFloat && tensor.bits == 32) return STRATA_F32;
  if (tensor.lanes == 1 && tensor.code == dlpack::kFloat && tensor.bits == 16) return STRATA_F16;
  if (tensor.lanes == 1 && tensor.code == dlpack::kBfloat && tensor.bits == 16) return STRATA_BF16;
  return Result<strata_dtype>(unsupported("has elements of type code ", int{tensor.code}, " with ",
                                          int{tensor.bits}, " bits and ", tensor.lanes,
                                          " lanes; they must be f32, bf16 or f16"));
}

Result<std::int64_t> count_elems(const dlpack::Tensor& tensor) {
  std::int64_t n = 1;
  for (std::int32_t i = tensor.n_dims; i-- > 0;) {
    const std::int64_t extent = tensor.dims[i];
    if (extent < 0)
      return Status::error(Code::invalid, str("dimension ", i, " of the DLPack tensor is ", extent));
    if (tensor.strides != nullptr && extent != 1 && tensor.strides[i] != n)
      return Result<std::int64_t>(unsupported("has stride ", tensor.strides[i], " in dimension ", i,
                                              "; row-major order without gaps needs ", n));
    if (__builtin_mul_overflow(n, extent, &n))
      return Status::error(Code::invalid, "the DLPack tensor has more than 2^63 elements");
  }
  return n;
}

Status describe(const dlpack::Tensor& from, bool is_read_only, strata_tensor* to) {
  if (from.device_type != dlpack::kCpu && from.device_type != dlpack::kCudaHost &&
      from.device_type != dlpack::kRocmHost)
    return unsupported("is on a device of type ", from.device_type, "; it must be in memory of the host");
  if (from.n_dims < 0 || from.n_dims > kMaxDims)
    return Status::error(Code::invalid, str("the DLPack tensor has ", from.n_dims,
                                            " dimensions; it must have 0 to ", kMaxDims));
  if (from.n_dims > 0 && from.dims == nullptr)
    return Status::error(Code::invalid, "the dims of the DLPack tensor are null");
  strata_tensor told{};
  STRATA_TRY_ASSIGN(told.dtype, dtype_of(from));
  STRATA_TRY_ASSIGN(told.n_elems, count_elems(from));
  if (from.data == nullptr && told.n_elems > 0)
    return Status::error(Code::invalid, "the data of the DLPack tensor is null");
  told.data = from.data == nullptr ? nullptr : static_cast<std::byte*>(from.data) + from.byte_offset;
  told.n_dims = from.n_dims;
  told.dims = from.dims;
  told.is_read_only = is_read_only ? 1 : 0;
  return write_struct(told, to, "strata_tensor");
}

}  // namespace

strata_status strata_tensor_from_dlpack(const void* managed, int32_t is_versioned, strata_tensor* tensor) {
  return call([&]() -> Status {
    if (managed == nullptr) return Status::error(Code::invalid, "the DLPack tensor is null");
    if (is_versioned == 0)
      return describe(static_cast<const dlpack::Managed*>(managed)->tensor, false, tensor);
    const auto& versioned = *static_cast<const dlpack::ManagedVersioned*>(managed);
    if (versioned.major != 1)
      return unsupported("has version ", versioned.major, ".", versioned.minor, "; only 1.x is known");
    return describe(versioned.tensor, (versioned.flags & dlpack::kReadOnly) != 0, tensor);
  });
}
