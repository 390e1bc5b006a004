// Measures how long the refresh of a gradient's basis takes; the claim `galore_refresh` compares it with
// torch.linalg.svd.
//   subspace_refresh BEFORE NOW BASES ROWS COLUMNS RANK THREADS
// BEFORE and NOW are gradients [ROWS, COLUMNS] in raw f32. For each line on stdin it finds the basis of NOW
// twice, without a previous basis and with that of BEFORE rounded to bf16, as a run keeps it, and prints the
// seconds of both as JSON. At the end of stdin it writes both bases [RANK, COLUMNS], or [ROWS, RANK] if the
// rows are shorter, to BASES, and prints the shares of the energy that they capture.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <strata/kernels/subspace.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

namespace {

using strata::DType;
using strata::Shape;
using strata::TensorView;
using strata::kernels::SubspaceSide;

TensorView view(std::vector<float>& values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), shape, DType::f32};
}

std::vector<float> read(const char* path, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file) throw std::runtime_error(strata::str(path, " has fewer than ", n, " values"));
  return values;
}

class Refresh {
 public:
  Refresh(std::int64_t rows, std::int64_t columns, std::int64_t rank, int threads)
      : rows_(rows),
        columns_(columns),
        rank_(rank),
        side_(rows >= columns ? SubspaceSide::right : SubspaceSide::left),
        pool_(strata::must(strata::ThreadPool::create(threads))),
        space_(strata::kernels::find_basis_workspace_bytes(parts(), columns, side_, DType::f32) /
               sizeof(double)) {}

  std::vector<float> no_basis() const { return std::vector<float>(static_cast<std::size_t>(elems())); }
  /// Returns the seconds.
  double find(std::vector<float>& g, std::vector<float>& previous, std::vector<float>& basis, float& energy) {
    basis.resize(static_cast<std::size_t>(elems()));
    std::vector<float> share(1);
    const auto begin = std::chrono::steady_clock::now();
    strata::kernels::find_basis_host(
        {view(g, {rows_, columns_}),
         view(previous, {elems()}),
         view(basis, {elems()}),
         view(share, {1}),
         {reinterpret_cast<std::byte*>(space_.data()), space_.size() * sizeof(double)},
         parts(),
         side_},
        *pool_);
    energy = share[0];
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::int64_t elems() const { return rank_ * std::min(rows_, columns_); }
  strata::kernels::LoraParts parts() const { return {{{{0, rows_, rank_}}}, 1}; }
  const std::int64_t rows_, columns_, rank_;
  const SubspaceSide side_;
  const std::unique_ptr<strata::ThreadPool> pool_;
  std::vector<double> space_;
};

void serve(char** arguments) {
  const std::int64_t rows = std::atoll(arguments[4]), columns = std::atoll(arguments[5]);
  Refresh refresh(rows, columns, std::atoll(arguments[6]), std::atoi(arguments[7]));
  std::vector<float> before = read(arguments[1], rows * columns), now = read(arguments[2], rows * columns),
                     none = refresh.no_basis(), previous, cold, warm;
  float cold_energy = 0, warm_energy = 0;
  refresh.find(before, none, previous, cold_energy);
  for (float& x : previous) x = strata::to_f32(strata::from_f32<strata::bf16>(x));
  for (std::string line; std::getline(std::cin, line);) {
    const double seconds = refresh.find(now, none, cold, cold_energy),
                 warm_seconds = refresh.find(now, previous, warm, warm_energy);
    fmt::print("{{\"seconds\": {}, \"warm_seconds\": {}}}\n", seconds, warm_seconds);
    std::fflush(stdout);
  }
  std::ofstream file(arguments[3], std::ios::binary);
  for (const auto* basis : {&cold, &warm})
    file.write(reinterpret_cast<const char*>(basis->data()),
               static_cast<std::streamsize>(basis->size() * sizeof(float)));
  if (!file.flush()) throw std::runtime_error(strata::str(arguments[3], " was not written"));
  fmt::print("{{\"energy\": {}, \"warm_energy\": {}}}\n", cold_energy, warm_energy);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    fmt::print(stderr, "usage: subspace_refresh BEFORE NOW BASES ROWS COLUMNS RANK THREADS\n");
    return 1;
  }
  try {
    serve(argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "subspace_refresh: {}\n", e.what());
    return 1;
  }
  return 0;
}
