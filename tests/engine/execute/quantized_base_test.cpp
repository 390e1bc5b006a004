#include <gtest/gtest.h>

#include <algorithm>

#include <strata/graph/op_list.h>
#include <strata/kernels/weight_quant.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "engine/execute/adapters.h"
#include "engine/execute/frozen_runs.h"
#include "engine/states.h"
#include "execute/matrix_quantizer.h"

namespace strata {
namespace {

using kernels::QuantizedMatrix;
using enum kernels::WeightFormat;
using test::TinyRun;

std::vector<float> weights(const QuantizedMatrix& matrix) {
  const Rng rng(3, 0);
  std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = rng.normal(i);
  return values;
}

// Pieces in order, of one byte, from the end, and in the middle of parts.
TEST(MatrixQuantizerTest, PiecesInAnyOrderAreThoseOfTheWholeMatrix) {
  const auto pool = must(ThreadPool::create(2));
  for (const kernels::WeightFormat format : kernels::kQuantizedFormats) {
    const QuantizedMatrix matrix = {format, 75, {40, 31, 222}, 2, QuantizedMatrix::kExpertAlign};
    const std::vector<float> values = weights(matrix);
    std::vector<std::byte> want(static_cast<std::size_t>(matrix.bytes()));
    kernels::quantize_matrix(matrix, values, want, *pool);
    std::int64_t n_read = 0;
    const auto read = [&](std::int64_t first, std::span<float> into) {
      n_read += std::ssize(into);
      std::copy_n(values.begin() + first, into.size(), into.begin());
      return Status::ok();
    };
    for (const std::int64_t piece : {std::int64_t{64}, std::int64_t{1000}, matrix.bytes()}) {
      detail::MatrixQuantizer quantizer(matrix, *pool);
      std::vector<std::byte> got(want.size());
      n_read = 0;
      for (std::int64_t at = 0; at < matrix.bytes(); at += piece)
        must(quantizer.read_bytes(at,
                                  std::span(got)
                                      .subspan(static_cast<std::size_t>(at))
                                      .first(static_cast<std::size_t>(std::min(piece, matrix.bytes() - at))),
                                  read));
      EXPECT_EQ(got, want) << piece;
      if (piece % 64 == 0 && piece < 1000 && !kernels::traits_of(format).by_rows) {
        EXPECT_EQ(n_read, matrix.n_elems()) << "each value is read once";
      }
    }
    detail::MatrixQuantizer quantizer(matrix, *pool);
    for (std::int64_t at = matrix.bytes() - 1; at >= 0; at -= 97) {
      std::byte byte{0xCB};
      must(quantizer.read_bytes(at, std::span(&byte, 1), read));
      EXPECT_EQ(byte, want[static_cast<std::size_t>(at)]) << at;
    }
  }
}

class QuantizedBaseTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

// The draws of a base do not depend on how it is stored.
TEST_P(QuantizedBaseTest, StartsFromTheQuantizedValuesOfTheSameDraws) {
  TinyRun plain(must(Engine::plan(test::adapted_programs(config), {})));
  must(plain.engine->initialize(5));
  const test::StateTensors base = test::states_of(*plain.engine, Payload::param);
  for (const kernels::WeightFormat format : kernels::kQuantizedFormats) {
    TinyRun run(must(Engine::plan(test::adapted_programs(config, Recompute::none, DType::f32, format), {})));
    EXPECT_EQ(run.plan->n_params(false), plain.plan->n_params(false));
    must(run.engine->initialize(5));
    const test::StateTensors states = test::states_of(*run.engine, Payload::param);
    for (std::size_t t = 0; t < run.plan->tensors.specs.size(); ++t) {
      const std::string& name = run.plan->tensors.specs[t].name;
      const QuantizedMatrix& matrix = run.plan->quantized_of_tensor[t];
      if (matrix.format == full) {
        EXPECT_EQ(states.at(name), base.at(name)) << name;
        continue;
      }
      std::vector<std::byte> want(static_cast<std::size_t>(matrix.bytes()));
      kernels::quantize_matrix(matrix, base.at(name), want, *must(ThreadPool::create(1)));
      ASSERT_EQ(states.at(name).size(), want.size()) << name;
      EXPECT_TRUE(std::equal(want.begin(), want.end(), states.at(name).begin(), [](std::byte a, float b) {
        return static_cast<float>(a) == b;
      })) << name;
    }
  }
}

// The losses of a quantized base are those of a base that has the dequantized values.
TEST_P(QuantizedBaseTest, TrainsAsOverTheDequantizedValues) {
  for (const DType compute : {DType::f32, DType::bf16})
    for (const kernels::WeightFormat format : kernels::kQuantizedFormats) {
      TinyRun run(must(Engine::plan(test::adapted_programs(config, Recompute::full, compute, format), {})));
      must(run.engine->initialize(5));
      const test::StateTensors states = test::states_of(*run.engine, Payload::param);
      TinyRun plain(must(Engine::plan(test::adapted_programs(config, Recompute::full, compute), {})));
      must(plain.engine->initialize(5, [&](const StatePiece& piece, std::span<float> values) -> Result<bool> {
        const auto tensor = static_cast<std::size_t>(
            std::find_if(run.plan->tensors.specs.begin(), run.plan->tensors.specs.end(),
                         [&](const LayoutTensor& spec) { return spec.name == piece.name; }) -
            run.plan->tensors.specs.begin());
        const QuantizedMatrix& matrix = run.plan->quantized_of_tensor[tensor];
        if (matrix.format == full) return false;
        const std::vector<float>& held = states.at(std::string(piece.name));
        std::vector<std::byte> bytes(held.size());
        std::transform(held.begin(), held.end(), bytes.begin(),
                       [](float byte) { return static_cast<std::byte>(byte); });
        kernels::dequantize_matrix(matrix, bytes, piece.offset, values);
        // As panels are rounded, to even: the upper half of a master is rounded half away from zero.
        if (compute == DType::bf16)
          for (float& value : values) value = to_f32(from_f32<bf16>(value));
        return true;
      }));
      EXPECT_EQ(run.train(3), plain.train(3)) << to_string(compute) << " " << to_string(format);
    }
}

// Formats x step modes x placements x micro-batches, one of them over a mixture of experts.
TEST(QuantizedBaseStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  for (const kernels::WeightFormat format : kernels::kQuantizedFormats)
    for (const std::int32_t grad_accum : {1, 3}) {
      SCOPED_TRACE(str(to_string(format), ", ", grad_accum, " micro-batches"));
      SessionOptions options;
      options.grad_accum = grad_accum;
      options.clip = 1e-4;
      const auto [family, compute] =
          grad_accum == 1 ? std::pair{"qwen2_moe", DType::f32} : std::pair{"llama", DType::bf16};
      test::frozen::expect_same_bits(
          test::adapted_programs(test::tiny_of_family(family), Recompute::none, compute, format), options);
    }
}

// As split_experts() makes them: a block of experts may be in another chunk than the next one.
TEST(QuantizedBaseStepTest, BlocksOfExpertsHaveTheBitsOfTheWhole) {
  for (const kernels::WeightFormat format : kernels::kQuantizedFormats) {
    const ProgramSet whole =
        test::adapted_programs(test::tiny_of_family("qwen2_moe"), Recompute::full, DType::bf16, format);
    ProgramSet blocks = whole;
    for (const ProgramRole role : {ProgramRole::eval, ProgramRole::train, ProgramRole::infer})
      blocks[role] =
          split_experts(std::move(blocks[role]), {.experts = 2, .align_elems = ChunkLayout::kSliceAlign});
    const auto products = [](const ProgramSet& programs) {
      const auto& code = programs[ProgramRole::train].code;
      return std::count_if(code.begin(), code.end(), [](const Instr& instr) {
        return instr.op == Op::expert_linear_quantized ||
               instr.op == Op::expert_linear_quantized_backward_input;
      });
    };
    EXPECT_EQ(products(blocks), 3 * products(whole)) << to_string(format) << ": of six experts";
    SessionOptions options;
    options.chunk_elems = ChunkLayout::kSliceAlign;
    TinyRun one(must(Engine::plan(whole, options))), other(must(Engine::plan(blocks, options)));
    must(one.engine->initialize(5));
    must(other.engine->initialize(5));
    EXPECT_EQ(one.train(3), other.train(3)) << to_string(format);
    EXPECT_EQ(must(one.engine->state_digest()), must(other.engine->state_digest())) << to_string(format);
  }
}

/// Bytes of the parameters of chunks that are quantized, and of all others.
std::pair<std::uint64_t, std::uint64_t> param_bytes(const RunPlan& plan) {
  std::pair<std::uint64_t, std::uint64_t> bytes;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    (plan.layout.group_of(chunk).compute == DType::u8 ? bytes.first : bytes.second) +=
        plan.layout.payload_bytes(chunk, Payload::param);
  return bytes;
}
std::uint64_t input_bytes(const LoweredProgram& program) {
  std::uint64_t bytes = 0;
  for (const LoweredProgram::Binding& end : program.bindings)
    if (end.is_input) bytes += end.operand.bytes();
  return bytes;
}

// Where a chunk is one matrix, a pass carries its bytes rounded up to pages, exactly.
TEST(QuantizedBaseStepTest, APassOverTheBaseCarriesItsQuantizedBytes) {
  for (const kernels::WeightFormat format : kernels::kQuantizedFormats) {
    SessionOptions options;
    options.policy = PlacementPolicy::pinned;
    options.chunk_elems = ChunkLayout::kSliceAlign;  // every larger tensor has a chunk of its own
    options.prefetch = 0;
    const auto choose = [](const ChunkLayout& layout, Placement& p) {
      test::frozen::assign_homes(test::frozen::Tiers::ram, layout, p);
    };
    TinyRun run(must(Engine::plan_with(test::adapted_programs(test::tiny_of_family("llama"), Recompute::none,
                                                              DType::bf16, format),
                                       options, choose)),
                2, {});
    const auto [quantized, others] = param_bytes(*run.plan);
    std::uint64_t want = 0;
    for (const QuantizedMatrix& matrix : run.plan->quantized_of_tensor)
      if (matrix.format != full)
        want += static_cast<std::uint64_t>(round_up(matrix.bytes(), std::int64_t{4096}));
    EXPECT_EQ(quantized, want);
    must(run.engine->initialize(1));
    test::CountingBatches batches(test::tiny_config().vocab);
    must(run.engine->evaluate(batches, 1));
    const MovedBytes before = run.engine->moved();
    must(run.engine->evaluate(batches, 1));
    EXPECT_EQ(run.engine->moved().h2d - before.h2d,
              quantized + others + input_bytes(run.plan->of(ProgramRole::eval)));
  }
}

TEST(QuantizedBaseStepTest, ABaseOnNvmeIsWrittenOnce) {
  const test::TempDir dir;
  SessionOptions options;
  options.nvme.dirs = {dir.path()};
  options.nvme.engine = IoEngine::threads;
  const auto choose = [](const ChunkLayout& layout, Placement& p) {
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
      for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
        if (layout.has(chunk, payload))
          p.homes[chunk][static_cast<std::size_t>(payload)] =
              layout.group_of(chunk).trainable ? Tier::device : Tier::nvme;
  };
  TinyRun run(must(Engine::plan_with(
                  test::adapted_programs(test::tiny_of_family("llama"), Recompute::none, DType::bf16, nf4_dq),
                  options, choose)),
              2, {});
  must(run.engine->initialize(1));
  run.train(1);
  const MovedBytes before = run.engine->moved();
  EXPECT_GT(before.nvme_write, param_bytes(*run.plan).first);
  run.train(3);
  EXPECT_EQ(run.engine->moved().nvme_write, before.nvme_write);
  EXPECT_GT(run.engine->moved().nvme_read, before.nvme_read);
}

INSTANTIATE_TEST_SUITE_P(Families, QuantizedBaseTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata
