#include <gtest/gtest.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_of;
using test::decoder_program;

// An instruction in words, without the marks of copies.
std::string line_of(const Program& program, const Instr& instr) {
  Program one = program;
  one.code = {instr};
  std::string text = to_string(one);
  std::erase(text, '\'');
  return str(text, " ", instr.region, " ", instr.attrs.seq, " ", instr.attrs.heads, " ", instr.attrs.eps, " ",
             instr.accumulate);
}
bool is_copy(const Program& program, const Instr& instr) {
  return program.value(instr.out[0]).name.ends_with('\'');
}

TEST(RecomputeTest, WithoutItsCopiesTheListIsTheListThatWentIn) {
  const Program before = decoder_program(decoder_of(3, 8), 2),
                after = decoder_program(decoder_of(3, 8), 2, true);
  std::vector<std::string> want, got;
  for (const Instr& instr : before.code) want.push_back(line_of(before, instr));
  for (const Instr& instr : after.code)
    if (!is_copy(after, instr)) got.push_back(line_of(after, instr));
  EXPECT_EQ(got, want);
}

TEST(RecomputeTest, EveryCopyIsTheVerySameInstructionOfAMarkedRegionOnceEach) {
  const Program program = decoder_program(decoder_of(3, 8), 2, true);
  std::vector<std::string> forward;
  for (const Instr& instr : program.code)
    if (!instr.backward) forward.push_back(line_of(program, instr));
  std::vector<std::string> copies;
  for (const Instr& instr : program.code) {
    if (!is_copy(program, instr)) continue;
    EXPECT_TRUE(instr.backward);
    EXPECT_TRUE(program.regions[static_cast<std::size_t>(instr.region)].recompute);
    copies.push_back(line_of(program, instr));
    EXPECT_EQ(std::count(forward.begin(), forward.end(), copies.back()), 1) << copies.back();
    EXPECT_EQ(std::count(copies.begin(), copies.end(), copies.back()), 1);
  }
  EXPECT_EQ(copies.size() % 3, 0u);  // the same in each of three blocks
  EXPECT_GE(copies.size(), 3u * 6u);
}

TEST(RecomputeTest, BackwardOfAMarkedRegionReadsNoneOfItsFirstValues) {
  const Program program = decoder_program(decoder_of(2, 8), 2, true);
  std::vector<std::int32_t> made_by(program.values.size(), -1);
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.out)
      if (!instr.backward) made_by[static_cast<std::size_t>(id)] = instr.region;
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      EXPECT_FALSE(instr.backward && id != kNoValue &&
                   made_by[static_cast<std::size_t>(id)] == instr.region &&
                   program.regions[static_cast<std::size_t>(instr.region)].recompute)
          << program.value(id).name;
}

TEST(RecomputeTest, ProgramsWithoutMarkedRegionsOrWithoutBackwardStayAsTheyAre) {
  Program unmarked = decoder_program(decoder_of(2, 8), 1);
  for (Region& region : unmarked.regions) region.recompute = false;
  EXPECT_EQ(to_string(recompute_regions(unmarked)), to_string(unmarked));
  const Program forward = must(record_decoder(decoder_of(2, 8), 1, DecoderHead::loss));
  EXPECT_EQ(to_string(recompute_regions(forward)), to_string(forward));
}

TEST(RecomputeTest, DoneTwiceItChangesNothingMore) {
  const Program once = decoder_program(decoder_of(2, 8), 1, true);
  EXPECT_EQ(to_string(recompute_regions(once)), to_string(once));
}

}  // namespace
}  // namespace strata
