// Checkpoints that leave out the frozen tensors of a run of adapters: they hold what is trained and the
// digests of the rest, which is read again from where the run read it.
#include <array>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>

#include "engine/execute/adapters.h"
#include "engine/rank_run.h"
#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::RankOutcome;
using test::RankRun;
using test::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The f32 values of a model, most of which no format of 16 bits has.
test::StateTensors base_of(const DecoderConfig& config) {
  test::StateTensors base;
  const Program program = must(record_decoder(config, 1, DecoderHead::loss));
  for (std::uint64_t i = 0; const ParamInfo& param : program.params) {
    const Rng rng(11, i++);
    std::vector<float>& values = base[param.name];
    values.resize(static_cast<std::size_t>(param.shape.n_elems()));
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = 0.05f * rng.normal(e);
  }
  return base;
}

InitialValues initial_values(const test::StateTensors& base) {
  return [&base](const StatePiece& piece, std::span<float> values) -> Result<bool> {
    if (!base.contains(piece.name)) return false;
    STRATA_TRY(test::fill_from(base)(piece, values));
    return true;
  };
}

FrozenSource source_of(const test::StateTensors& base) { return {"models/base", test::fill_from(base)}; }

struct FrozenCase {
  const char* name;
  const char* family;
  DType compute;
  bool masters;
  PlacementPolicy policy;
  test::LowRank adapters = test::LowRank::lora;
};

class FrozenCheckpointTest : public ::testing::TestWithParam<FrozenCase> {
 protected:
  SessionOptions options(bool saves_frozen) const {
    SessionOptions options;
    options.policy = GetParam().policy;
    options.nvme.dirs = {dir.path()};
    options.grad_accum = 2;
    options.frozen_masters = GetParam().masters;
    options.saves_frozen = saves_frozen;
    return options;
  }
  ProgramSet programs() const {
    return test::adapted_programs(config, Recompute::none, GetParam().compute, kernels::WeightFormat::full,
                                  GetParam().adapters);
  }
  TinyRun run_of(bool saves_frozen) const {
    return TinyRun(must(Engine::plan(programs(), options(saves_frozen))));
  }
  TinyRun started(bool saves_frozen) const {
    TinyRun run = run_of(saves_frozen);
    must(run.engine->initialize(3, initial_values(base)));
    return run;
  }
  std::string save(TinyRun& run, const std::string& name) const {
    return must(save_checkpoint(*run.engine, posix_io(), dir.file(name), {}, 0));
  }

  const test::TempDir dir;
  const DecoderConfig config = test::tiny_of_family(GetParam().family);
  const test::StateTensors base = base_of(config);
};

TEST_P(FrozenCheckpointTest, AResumedRunHasTheBitsOfARunThatSavesAll) {
  TinyRun whole = started(true), small = started(false);
  EXPECT_EQ(must(small.engine->state_digest()), must(whole.engine->state_digest()));
  whole.train(2);
  small.train(2);
  const std::string saved = save(small, "small");
  EXPECT_EQ(must(small.engine->state_digest()), must(whole.engine->state_digest()));
  const std::vector<float> rest = whole.train(2);
  for (const bool saves_frozen : {false, true}) {
    TinyRun resumed = run_of(saves_frozen);
    must(load_checkpoint(*resumed.engine, posix_io(), saved, source_of(base)));
    EXPECT_EQ(resumed.train(2), rest);
    EXPECT_EQ(must(resumed.engine->state_digest()), must(whole.engine->state_digest()));
    EXPECT_EQ(resumed.engine->left_out().empty(), saves_frozen);
  }
}

TEST_P(FrozenCheckpointTest, HoldsTwelveBytesForEachTrainedParameter) {
  TinyRun run = started(false);
  run.train(1);
  const std::string saved = save(run, "small");
  const Manifest manifest = must(read_manifest(posix_io(), saved));
  std::uint64_t bytes = 0, headers = 0, derived = 0;
  for (const CheckpointFile& file : manifest.files) {
    bytes += file.bytes;
    headers += 16 + 160 * file.tensors.size();
    for (const LayoutTensor& tensor : run.plan->tensors.specs) {
      const bool is_derived = tensor.name.find("0", tensor.name.find(".lora_")) != std::string::npos;
      EXPECT_EQ(file.tensors.contains(tensor.name),
                tensor.group.trainable || (is_derived && file.name == "param.safetensors"))
          << tensor.name;
      if (is_derived && file.name == "param.safetensors")
        derived += 4 * static_cast<std::uint64_t>(tensor.n_elems);
    }
  }
  EXPECT_EQ(manifest.files.size(), 3u);
  EXPECT_LE(bytes, 12 * static_cast<std::uint64_t>(run.plan->n_params(true)) + derived + headers);
  EXPECT_EQ(manifest.frozen.size(), base.size());
  must(check_digests(posix_io(), saved, manifest));
}

TEST_P(FrozenCheckpointTest, ARunThatOnlyEvaluatesReadsTheBaseToo) {
  TinyRun trained = started(false);
  trained.train(2);
  test::CountingBatches batches(config.vocab);
  const double want = must(trained.engine->evaluate(batches, 2));
  const std::string saved = save(trained, "small");
  ProgramSet set;
  set[ProgramRole::eval] = programs()[ProgramRole::eval];
  TinyRun other(must(Engine::plan(set, options(false))));
  must(load_checkpoint(*other.engine, posix_io(), saved, source_of(base)));
  EXPECT_EQ(must(other.engine->evaluate(batches, 2)), want);
}

TEST_P(FrozenCheckpointTest, AnotherBaseIsRefusedWithTheTensorAndBothDigests) {
  TinyRun run = started(false);
  const std::string saved = save(run, "small");
  const Manifest manifest = must(read_manifest(posix_io(), saved));
  test::StateTensors other = base;
  std::vector<float>& changed = other["layers.1.mlp_out.weight"];
  changed.back() = std::nextafter(changed.back(), 1.0f);
  BlockDigester digester;
  digester.update(std::as_bytes(std::span(changed)));
  TinyRun resumed = run_of(false);
  const Status status = load_checkpoint(*resumed.engine, posix_io(), saved, source_of(other)).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(str("the base in models/base is not the one that this checkpoint was trained over: tensor "
                    "layers.1.mlp_out.weight has the digest ",
                    to_hex(digester.digest()), ", the checkpoint says ",
                    manifest.frozen.at("layers.1.mlp_out.weight"))));
  EXPECT_FALSE(save_checkpoint(*resumed.engine, posix_io(), dir.file("small"), {}, 0).has_value());
  must(load_checkpoint(*resumed.engine, posix_io(), saved, source_of(base)));
  EXPECT_EQ(must(resumed.engine->state_digest()), must(run.engine->state_digest()));
}

INSTANTIATE_TEST_SUITE_P(
    Placements, FrozenCheckpointTest,
    ::testing::Values(FrozenCase{"f32", "gpt2", DType::f32, true, PlacementPolicy::automatic},
                      FrozenCase{"f32_nvme", "qwen3", DType::f32, false, PlacementPolicy::nvme},
                      FrozenCase{"bf16", "llama", DType::bf16, false, PlacementPolicy::automatic},
                      FrozenCase{"bf16_device", "gpt2", DType::bf16, false, PlacementPolicy::device},
                      FrozenCase{"bf16_masters", "qwen3", DType::bf16, true, PlacementPolicy::pinned},
                      FrozenCase{"bf16_nvme", "gpt2", DType::bf16, false, PlacementPolicy::nvme},
                      FrozenCase{"f16_masters_nvme", "gpt2", DType::f16, true, PlacementPolicy::nvme},
                      FrozenCase{"f16_pinned", "llama", DType::f16, false, PlacementPolicy::pinned},
                      FrozenCase{"pissa", "gpt2", DType::f32, true, PlacementPolicy::automatic,
                                 test::LowRank::pissa},
                      FrozenCase{"pissa_bf16_nvme", "llama", DType::bf16, false, PlacementPolicy::nvme,
                                 test::LowRank::pissa}),
    [](const auto& test) { return std::string(test.param.name); });

class LeftOutTest : public ::testing::Test {
 protected:
  TinyRun run_of(const DecoderConfig& of, bool saves_frozen = false) const {
    SessionOptions options;
    options.saves_frozen = saves_frozen;
    return TinyRun(must(Engine::plan(test::adapted_programs(of), options)));
  }
  std::string save(TinyRun& run, const std::string& name) const {
    return must(save_checkpoint(*run.engine, posix_io(), dir.file(name), {}, 0));
  }
  const test::TempDir dir;
  const DecoderConfig config = test::tiny_config();
  const test::StateTensors base = base_of(config);
};

TEST_F(LeftOutTest, WithoutASourceTheMessageSaysWhatToSet) {
  TinyRun run = run_of(config);
  must(run.engine->initialize(3, initial_values(base)));
  const std::string saved = save(run, "small");
  const Status status = load_checkpoint(*run.engine, posix_io(), saved).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(saved), HasSubstr("set model.from")));
  EXPECT_TRUE(run.engine->state_digest().has_value()) << "the states are as they were";
}

TEST_F(LeftOutTest, ATruncatedOrDamagedFileIsRefused) {
  TinyRun run = run_of(config);
  must(run.engine->initialize(3, initial_values(base)));
  const std::string saved = save(run, "small");
  for (const char* name : {"param", "m", "v"}) {
    const std::string path = str(saved, "/", name, ".safetensors");
    const std::string whole = must(read_text(posix_io(), path, 1 << 30));
    std::string damaged = whole;
    damaged[damaged.size() - 7] ^= 4;
    for (const std::string& text : {whole.substr(0, whole.size() - 4), damaged}) {
      must(write_text_atomically(posix_io(), path, text));
      EXPECT_EQ(load_checkpoint(*run.engine, posix_io(), saved, source_of(base)).status().code(),
                Code::corrupt);
    }
    must(write_text_atomically(posix_io(), path, whole));
  }
  must(load_checkpoint(*run.engine, posix_io(), saved, source_of(base)));
}

TEST_F(LeftOutTest, ARunThatWasFilledFromAWholeCheckpointGoesOnSavingAll) {
  TinyRun whole = run_of(config, true), other = run_of(config);
  must(whole.engine->initialize(3, initial_values(base)));
  must(load_checkpoint(*other.engine, posix_io(), save(whole, "whole"), source_of(base)));
  EXPECT_TRUE(other.engine->left_out().empty());
  other.train(1);
  const std::string saved = save(other, "other");
  EXPECT_TRUE(must(read_manifest(posix_io(), saved)).frozen.empty());
  must(load_checkpoint(*whole.engine, posix_io(), saved));
  EXPECT_EQ(must(whole.engine->state_digest()), must(other.engine->state_digest()));
}

TEST_F(LeftOutTest, AnotherModelIsRefused) {
  TinyRun run = run_of(config);
  must(run.engine->initialize(3, initial_values(base)));
  const std::string saved = save(run, "small");
  DecoderConfig deeper = config;
  deeper.layers = 3;
  TinyRun other = run_of(deeper);
  const test::StateTensors values = base_of(deeper);
  const auto problem = [&](TinyRun& into) {
    const Status status = load_checkpoint(*into.engine, posix_io(), saved, source_of(values)).status();
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  };
  EXPECT_THAT(problem(other), HasSubstr("layers.2.mlp_out.weight is missing"));
  TinyRun trains_all(must(Engine::plan(test::tiny_programs(), {})));
  EXPECT_THAT(problem(trains_all), HasSubstr("tokens.weight is missing"));
}

TEST_F(LeftOutTest, SavingReadsNoFrozenChunk) {
  DecoderConfig large = config;
  large.vocab = 8000;
  std::uint64_t frozen = 0;
  const auto bytes_read = [&](bool saves_frozen) {
    SessionOptions options;
    options.policy = PlacementPolicy::device;
    options.saves_frozen = saves_frozen;
    TinyRun run(must(Engine::plan(test::adapted_programs(large), options)));
    must(run.engine->initialize(3));
    frozen = static_cast<std::uint64_t>(run.plan->n_params(false)) * sizeof(float);
    const std::uint64_t before = run.engine->moved().d2h;
    save(run, saves_frozen ? "whole" : "small");
    must(run.engine->state_digest());
    return run.engine->moved().d2h - before;
  };
  const std::uint64_t all = bytes_read(true), trained = bytes_read(false);
  EXPECT_GE(all, 2 * frozen) << "once for the checkpoint, once for the digest";
  EXPECT_LE(trained, all - 2 * frozen);
}

// Some ranks hold nothing of the adapters, since each has 4096 elements of a chunk.
RankRun ranks_of(std::int32_t ranks, std::int32_t zero, DType compute) {
  RankRun run;
  run.ranks = ranks;
  run.plan = [=](std::int32_t rank) {
    SessionOptions options;
    options.grad_accum = 12;
    options.chunk_elems = 4096 * ranks;
    options.budgets = {8 << 20, 8 << 20, 0};
    options.policy = zero % 2 == 0 ? PlacementPolicy::device : PlacementPolicy::pinned;
    options.ranks = {.ranks = ranks, .rank = rank, .zero = ranks == 1 ? 0 : zero};
    options.frozen_masters = false;
    options.saves_frozen = false;
    return Engine::plan(test::adapted_programs(test::rank_model(), Recompute::none, compute), options);
  };
  return run;
}

Status train(Engine& engine, int steps, RankOutcome& outcome) {
  test::CountingBatches batches(test::rank_model().vocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-2, report));
    outcome.losses.push_back(report.loss);
  }
  return {};
}

struct Saved {
  std::vector<float> losses;
  std::string digest;
  std::map<std::string, std::string> files;
};

// Trains two steps and saves, then loads its own checkpoint and trains two more.
Saved save_and_go_on(const RankRun& run, const test::StateTensors& base, const std::string& folder) {
  Saved saved;
  const RankOutcome outcome = run.run([&](Engine& engine, RankOutcome& mine) -> Status {
    STRATA_TRY(engine.initialize(3, initial_values(base)));
    STRATA_TRY(train(engine, 2, mine));
    STRATA_TRY_ASSIGN(const std::string path, save_checkpoint(engine, posix_io(), folder, {}, 0));
    STRATA_TRY(load_checkpoint(engine, posix_io(), path, source_of(base)).status());
    STRATA_TRY(train(engine, 2, mine));
    STRATA_TRY_ASSIGN(const std::string digest, engine.state_digest());
    if (engine.plan().options.ranks.rank == 0) saved.digest = digest;
    return {};
  });
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  saved.losses = outcome.losses;
  for (const std::string& name : must(posix_io().list(folder + "/step-00000002")))
    saved.files[name] = must(read_text(posix_io(), str(folder, "/step-00000002/", name), 1 << 30));
  return saved;
}

TEST(RankLeftOutTest, EveryWorldWritesTheSameBytesAndContinuesWithTheSameBits) {
  const test::TempDir dir;
  const test::StateTensors base = base_of(test::rank_model());
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Saved want =
        save_and_go_on(ranks_of(1, 0, compute), base, str(dir.path(), "/", to_string(compute)));
    EXPECT_EQ(want.files.size(), 4u);
    for (const std::int32_t ranks : {2, 3, 4})
      for (const std::int32_t zero : {0, 2, 3}) {
        const std::string name = str(to_string(compute), "-", ranks, "-", zero);
        const Saved got = save_and_go_on(ranks_of(ranks, zero, compute), base, dir.file(name));
        EXPECT_EQ(got.losses, want.losses) << name;
        EXPECT_EQ(got.digest, want.digest) << name;
        EXPECT_EQ(got.files, want.files) << name;
      }
  }
}

TEST(RankLeftOutTest, AnotherBaseOnOneRankIsAnErrorOnAll) {
  const test::TempDir dir;
  const test::StateTensors base = base_of(test::rank_model());
  test::StateTensors other = base;
  for (float& value : other["layers.2.mlp_in.weight"]) value += 1;
  std::array<Status, 4> loaded;
  const RankOutcome outcome = ranks_of(4, 3, DType::f32).run([&](Engine& engine, RankOutcome&) -> Status {
    const std::int32_t rank = engine.plan().options.ranks.rank;
    STRATA_TRY(engine.initialize(3, initial_values(base)));
    STRATA_TRY_ASSIGN(const std::string path, save_checkpoint(engine, posix_io(), dir.file("c"), {}, 0));
    loaded[static_cast<std::size_t>(rank)] =
        load_checkpoint(engine, posix_io(), path, source_of(rank == 2 ? other : base)).status();
    return {};
  });
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  for (const Status& status : loaded) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor layers.2.mlp_in.weight has the digest"));
  }
}

TEST(RankLeftOutTest, AFailureOfOneRankWhileTheBaseIsReadIsAnErrorOnAll) {
  const test::StateTensors base = base_of(test::rank_model());
  std::array<Status, 3> filled;
  const RankOutcome outcome = ranks_of(3, 3, DType::f32).run([&](Engine& engine, RankOutcome&) -> Status {
    const std::int32_t rank = engine.plan().options.ranks.rank;
    const InitialValues values = initial_values(base);
    filled[static_cast<std::size_t>(rank)] =
        engine.initialize(3, [&](const StatePiece& piece, std::span<float> into) -> Result<bool> {
          if (rank == 1) return Status::error(Code::io_error, "the disk is gone");
          return values(piece, into);
        });
    return {};
  });
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  for (const Status& status : filled) {
    EXPECT_EQ(status.code(), Code::io_error);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the disk is gone"));
  }
}

}  // namespace
}  // namespace strata
