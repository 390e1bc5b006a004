// Random programs with random annotations along the axes of random meshes, each against the whole program.
#include <cstdlib>

#include <gtest/gtest.h>

#include <strata/graph/op_list.h>

#include "graph/program_maker.h"
#include "sharding/gradient_run.h"

namespace strata {
namespace {

using test::Along;

/// The objects of a program that can be annotated, each in a dimension: parameters, and results of
/// instructions by their names.
std::vector<std::pair<std::string, int>> splittable(const Program& program) {
  std::vector<std::pair<std::string, int>> all;
  for (const ParamInfo& param : program.params) all.emplace_back(param.name, param.shape.rank);
  for (const Instr& instr : program.code)
    all.emplace_back(
        str(program.regions[static_cast<std::size_t>(instr.region)].name, "/", op_name(instr.op)),
        program.value(instr.out[0]).shape.rank);
  return all;
}

/// Annotations along an axis, at random; what one of the ranks refuses is left out. `first` and `last` are
/// the programs of those that have the most and the least.
std::vector<ShardAnnotation> draw_annotations(const Program& first, const Program& last,
                                              const ShardAxis& axis, const Rng& rng) {
  const auto all = splittable(first);
  const auto is_refused = [&](const std::vector<ShardAnnotation>& by) {
    return !partition(first, axis, by).has_value() || !partition(last, axis, by).has_value();
  };
  std::vector<ShardAnnotation> chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, dims] = all[i];
    const bool is_param = i < first.params.size();
    if (dims == 0 || rng.below(i, 6) < (is_param ? 2u : 5u)) continue;
    const auto dim = static_cast<int>(rng.below(1000 + i, static_cast<std::uint64_t>(dims)));
    chosen.push_back({name, dim, is_param && rng.below(2000 + i, 4) == 0});
    if (is_refused(chosen)) chosen.pop_back();
  }
  return chosen;
}

/// One or two axes, of two to four ranks together.
std::vector<ShardAxis> draw_axes(const Rng& rng) {
  if (rng.below(5000, 3) == 0)
    return {{.name = "tp", .number = 0, .ranks = 2}, {.name = "tp2", .number = 1, .ranks = 2}};
  return {{.name = "tp", .number = 0, .ranks = 2 + static_cast<int>(rng.below(5001, 3))}};
}

class RandomPartitions : public ::testing::TestWithParam<int> {};

TEST_P(RandomPartitions, GradientsAreThoseOfOneRank) {
  std::size_t split = 0;
  for (int i = 0; i < 8; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * 8 + i);
    SCOPED_TRACE(seed);
    const Program whole = test::random_program(seed, true);
    const Rng rng(seed, 29);
    std::vector<Along> mesh;
    Program first = whole, last = whole;
    for (ShardAxis axis : draw_axes(rng)) {
      mesh.push_back({axis, draw_annotations(first, last, axis,
                                             Rng(seed, 31 + static_cast<std::uint64_t>(axis.number)))});
      first = must(partition(first, axis, mesh.back().texts));
      axis.rank = axis.ranks - 1;
      last = must(partition(last, axis, mesh.back().texts));
      split += mesh.back().texts.size();
    }
    test::expect_same(whole, mesh, 2e-5);
  }
  EXPECT_GT(split, 8u);
}

/// 96 programs, or as many as RANDOM_PARTITIONS says.
int batches() {
  const char* const programs = std::getenv("RANDOM_PARTITIONS");
  return programs == nullptr ? 12 : std::atoi(programs) / 8;
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPartitions, ::testing::Range(0, batches()));

}  // namespace
}  // namespace strata
