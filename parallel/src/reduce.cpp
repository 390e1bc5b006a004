#include "reduce.h"

#include <algorithm>

#include "reduce_math.h"

namespace strata::detail {
namespace {

constexpr std::int64_t kBlock = 16384;  // elements of a work item

template <class T, class Op>
void reduce_range(const ReduceArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const auto element = [&](int part) {
      return reinterpret_cast<const T*>(a.parts[static_cast<std::size_t>(part)])[i];
    };
    reinterpret_cast<T*>(a.into)[i] = reduce_element<T, Op>(static_cast<int>(a.parts.size()), element);
  }
}

template <class T>
void reduce_as(const ReduceArgs& a, ThreadPool& pool) {
  const auto n = static_cast<std::int64_t>(a.bytes / sizeof(T));
  pool.parallel_for((n + kBlock - 1) / kBlock, [&](std::int64_t block) {
    const std::int64_t begin = block * kBlock, end = std::min(n, begin + kBlock);
    if (a.reduction == Reduction::sum)
      reduce_range<T, Sum>(a, begin, end);
    else
      reduce_range<T, Max>(a, begin, end);
  });
}

}  // namespace

void reduce(const ReduceArgs& args, ThreadPool& pool) {
  switch (args.dtype) {
    case DType::f64:
      return reduce_as<double>(args, pool);
    case DType::f32:
      return reduce_as<float>(args, pool);
    case DType::bf16:
      return reduce_as<bf16>(args, pool);
    case DType::f16:
      return reduce_as<f16>(args, pool);
    case DType::i32:
      return reduce_as<std::int32_t>(args, pool);
    default:
      return;  // refused by check()
  }
}

std::size_t part_begin(std::size_t bytes, DType dtype, int rank, int size) noexcept {
  const std::size_t width = size_of(dtype);
  return bytes / width * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size) * width;
}

}  // namespace strata::detail
