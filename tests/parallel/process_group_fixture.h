#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/convert.h>

#include "parallel/ranks.h"
#include "support/numeric.h"

// The ranks of a transport, and buffers of theirs.

namespace strata::test {

using Bytes = std::vector<std::byte>;

/// Values of one rank in `dtype`; those of f64 are not representable in f32.
inline Bytes values_of(int rank, DType dtype, std::size_t n) {
  Values values(static_cast<std::uint64_t>(rank) * 7919 + 17);
  Bytes out(n * size_of(dtype));
  const std::vector<float> floats = values.floats(static_cast<std::int64_t>(n), 8.0);
  if (dtype == DType::f64 || dtype == DType::i32) {
    for (std::size_t i = 0; i < n; ++i) {
      const double wide = floats[i] / 3.0;
      const auto whole = static_cast<std::int32_t>(floats[i] * 1e6f);
      if (dtype == DType::f64) std::memcpy(out.data() + 8 * i, &wide, 8);
      if (dtype == DType::i32) std::memcpy(out.data() + 4 * i, &whole, 4);
    }
    return out;
  }
  must(narrow_from_f32(floats, dtype, out));
  return out;
}

/// A buffer of one rank that is filled, used by collectives and read in stream order.
class RankBuffer {
 public:
  RankBuffer(Rank& rank, const Bytes& contents) : rank_(rank), buffer_(rank.allocate(contents.size())) {
    const BufferView view = buffer_.view().part(0, contents.size());
    if (!contents.empty()) must(rank_.backend.host_access({view.data, view.bytes, true}));
    std::copy(contents.begin(), contents.end(), view.data);
    bytes_ = contents.size();
  }
  BufferView view() const { return buffer_.view().part(0, bytes_); }
  Bytes contents() const {
    must(rank_.backend.synchronize(rank_.stream));
    if (bytes_ > 0) must(rank_.backend.host_access({view().data, bytes_, false}));
    return {view().data, view().data + bytes_};
  }

 private:
  Rank& rank_;
  Buffer buffer_;
  std::size_t bytes_ = 0;
};

class ProcessGroupTest : public ::testing::TestWithParam<std::tuple<StreamSchedule, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  std::size_t n() const { return static_cast<std::size_t>(size()); }
  std::vector<Bytes> inputs(DType dtype, std::size_t elems) const {
    std::vector<Bytes> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(values_of(rank, dtype, elems));
    return all;
  }
  void must_run(const std::function<Status(Rank&)>& body) { ranks_->must_run(body); }
  std::unique_ptr<Ranks> ranks_ = make_ranks(size(), std::get<0>(GetParam()));
};

}  // namespace strata::test
