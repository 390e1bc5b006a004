#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <strata/kernels/lora_rows.h>

#include "support/op_test.h"

namespace strata::test {

/// A batch of rows that choose among adapters of different ranks, parts and scales.
struct RowAdapters {
  struct Adapter {
    kernels::LoraParts parts;
    float scale;
    Tensor a, b;
  };
  std::string name;
  Tensor base, x;
  std::vector<std::int32_t> numbers;  // one for each row
  std::vector<Adapter> adapters;
  std::int64_t columns, inner;

  std::int64_t rows() const { return static_cast<std::int64_t>(numbers.size()); }
  Shape base_shape() const { return {rows(), columns}; }
  std::vector<float> base_values() const { return base.values(); }
  std::vector<float> row(const std::vector<float>& values, std::size_t t) const {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(t) * columns;
    return {from, from + columns};
  }

  /// The result of all adapters, one after the other in place, as a program does it.
  template <class Run>
  std::vector<float> run_with(const Run& apply) const {
    Tensor y = base, in = x;
    std::vector<std::int32_t> chosen = numbers;
    for (std::size_t k = 0; k < adapters.size(); ++k) {
      Tensor a = adapters[k].a, b = adapters[k].b;
      Workspace workspace(kernels::lora_rows_workspace_bytes(rows(), adapters[k].parts));
      apply(kernels::LoraRowsArgs{y.view(), in.view(), a.view(), b.view(), view(chosen), y.view(),
                                  adapters[k].parts, adapters[k].scale, static_cast<std::int32_t>(k),
                                  workspace.view()});
    }
    return y.values();
  }
  std::vector<float> run(int threads = 2) const {
    const auto workers = pool(threads);
    return run_with([&](const kernels::LoraRowsArgs& args) { kernels::lora_rows_host(args, *workers); });
  }
  /// The whole batch with adapter `k` and no other; -1: with none.
  std::vector<float> run_alone(std::int32_t k) const {
    RowAdapters alone = *this;
    alone.adapters.clear();
    if (k >= 0) alone.adapters.push_back(adapters[static_cast<std::size_t>(k)]);
    std::fill(alone.numbers.begin(), alone.numbers.end(), k >= 0 ? 0 : -1);
    return alone.run();
  }
  /// A batch of row `t` alone.
  RowAdapters only_row(std::size_t t) const {
    const std::vector<float> all = x.values();
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(t) * inner;
    RowAdapters one = *this;
    one.base = Tensor({1, columns}, row(base.values(), t), base.dtype());
    one.x = Tensor({1, inner}, {from, from + inner}, x.dtype());
    one.numbers = {numbers[t]};
    return one;
  }
  std::vector<double> reference() const {
    std::vector<double> want = widen(base.values());
    for (std::size_t t = 0; t < numbers.size(); ++t)
      if (numbers[t] >= 0) add_reference(adapters[static_cast<std::size_t>(numbers[t])], t, want);
    return want;
  }

 private:
  void add_reference(const Adapter& adapter, std::size_t t, std::vector<double>& want) const {
    const auto n = static_cast<std::size_t>(inner), width = static_cast<std::size_t>(columns);
    const std::vector<float> xs = x.values(), as = adapter.a.values(), bs = adapter.b.values();
    std::size_t first_rank = 0, first_elem = 0;
    for (const kernels::LoraPart& part : adapter.parts.all()) {
      const auto rank = static_cast<std::size_t>(part.rank), count = static_cast<std::size_t>(part.rows);
      for (std::size_t j = 0; j < rank; ++j) {
        double u = 0;
        for (std::size_t i = 0; i < n; ++i)
          u += static_cast<double>(as[(first_rank + j) * n + i]) * static_cast<double>(xs[t * n + i]);
        for (std::size_t r = 0; r < count; ++r)
          want[t * width + static_cast<std::size_t>(part.first_row) + r] +=
              static_cast<double>(adapter.scale) * u * static_cast<double>(bs[first_elem + r * rank + j]);
      }
      first_rank += rank;
      first_elem += rank * count;
    }
  }
};

inline RowAdapters::Adapter row_adapter(const kernels::LoraParts& parts, float scale, std::int64_t inner,
                                        std::uint64_t seed, DType dtype) {
  std::int64_t ranks = 0, elems = 0;
  for (const kernels::LoraPart& part : parts.all()) {
    ranks += part.rank;
    elems += part.rank * part.rows;
  }
  return {parts, scale, Tensor({ranks, inner}, Values(seed).floats(ranks * inner, 0.2), dtype),
          Tensor({elems}, Values(seed + 50).floats(elems), dtype)};
}

/// Queries, keys and values of which each adapter changes others; one long matrix, with more sums than a work
/// item has, and more rows than threads; a rank of one.
inline std::vector<RowAdapters> row_adapter_problems(DType dtype) {
  const auto problem = [&](std::string name, std::vector<std::int32_t> numbers, std::int64_t columns,
                           std::int64_t inner, std::vector<RowAdapters::Adapter> adapters) {
    const auto rows = static_cast<std::int64_t>(numbers.size());
    return RowAdapters{std::move(name),
                       Tensor({rows, columns}, Values(11).floats(rows * columns), dtype),
                       Tensor({rows, inner}, Values(12).floats(rows * inner), dtype),
                       std::move(numbers),
                       std::move(adapters),
                       columns,
                       inner};
  };
  return {
      problem("qkv", {2, -1, 0, 1, 2, 0, -1}, 44, 24,
              {row_adapter({{{{0, 20, 2}, {32, 12, 3}}}, 2}, 0.5f, 24, 1, dtype),
               row_adapter({{{{0, 20, 9}, {20, 12, 1}, {32, 12, 17}}}, 3}, 2.0f, 24, 2, dtype),
               row_adapter({{{{20, 12, 4}}}, 1}, 1.25f, 24, 3, dtype)}),
      problem("wide", {1, 0, 1, 1, -1, 0, 0, 1, 0, -1, 1}, 2100, 1030,
              {row_adapter({{{{0, 2100, 16}}}, 1}, 1.0f, 1030, 4, dtype),
               row_adapter({{{{0, 2100, 33}}}, 1}, 0.25f, 1030, 5, dtype)}),
      problem("rank1", {0}, 5, 3, {row_adapter({{{{1, 3, 1}}}, 1}, 3.0f, 3, 6, dtype)}),
  };
}

}  // namespace strata::test
