#include <strata/engine/checkpoint.h>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "engine/tiny_run.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::TempDir;
using test::tiny_programs;
using test::TinyRun;

EngineOptions three_tiers(const std::string& dir) {
  EngineOptions options;
  options.budgets = {600 * kKiB, 400 * kKiB, 4 * kMiB};
  options.grad_accum = 2;
  options.nvme.dirs = {dir};
  return options;
}

TEST(CheckpointTest, ResumingOnAnotherPlacementGivesTheBitsOfTheUninterruptedRun) {
  const TempDir dir;
  TinyRun straight(must(Engine::plan(tiny_programs(), {.grad_accum = 2})));
  must(straight.engine->initialize(3));
  straight.train(4);

  TinyRun first(must(Engine::plan(tiny_programs(Recompute::block), three_tiers(dir.path()))));
  must(first.engine->initialize(3));
  first.train(2);
  const std::string saved =
      must(save_checkpoint(*first.engine, posix_io(), dir.file("checkpoints"), {{"note", "half way"}}, 0));

  TinyRun second(must(Engine::plan(tiny_programs(), {.chunk_elems = 8192, .grad_accum = 2})));
  EXPECT_EQ(must(load_checkpoint(*second.engine, posix_io(), saved)).run.at("note"), "half way");
  EXPECT_EQ(second.engine->steps(), 2);
  second.train(2);
  EXPECT_EQ(must(second.engine->state_digest()), must(straight.engine->state_digest()));
}

TEST(ManifestTest, WhatIsNoCountIsRefusedByName) {
  const auto manifest = [](const std::string& version, const std::string& step, const std::string& bytes) {
    return manifest_from_json(str(R"({"format": "strata-checkpoint", "version": )", version, R"(, "step": )",
                                  step, R"(, "files": [{"name": "a", "bytes": )", bytes,
                                  R"(, "digest": "00"}], "run": {}})"))
        .status();
  };
  EXPECT_TRUE(manifest("1", "7", "123").is_ok());
  EXPECT_EQ(manifest("1", "7", "1e300").message(), "its bytes is 1e+300, no count up to 9223372036854775807");
  for (const std::string value : {"-1", "1.5", "1e300", "\"1\"", "null", "18446744073709551615"}) {
    EXPECT_EQ(manifest(value, "7", "123").code(), Code::corrupt) << value;
    EXPECT_EQ(manifest("1", value, "123").code(), Code::corrupt) << value;
    EXPECT_EQ(manifest("1", "7", value).code(), Code::corrupt) << value;
  }
}

TEST(CheckpointTest, OnlyTheNewestAreKept) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  for (int i = 0; i < 4; ++i) {
    run.train(1);
    must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 2));
  }
  EXPECT_EQ(must(posix_io().list(dir.path())), (std::vector<std::string>{"step-00000003", "step-00000004"}));
}

TEST(CheckpointTest, AFlippedBitIsFoundBeforeAnyTensorIsUsed) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  const std::string digest = must(run.engine->state_digest());
  {
    std::FILE* file = std::fopen((saved + "/m.safetensors").c_str(), "r+b");
    std::fseek(file, -5, SEEK_END);
    std::fputc(1, file);
    std::fclose(file);
  }
  const Status status = load_checkpoint(*run.engine, posix_io(), saved).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_NE(status.message().find("m.safetensors"), std::string_view::npos);
  EXPECT_EQ(must(run.engine->state_digest()), digest);
}

TEST(CheckpointTest, AnotherModelIsRefusedWithEveryDifference) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  DecoderConfig other = test::tiny_config();
  other.layers = 3;
  other.ffn = 96;
  TinyRun second(must(Engine::plan(tiny_programs(Recompute::none, 3, other), {})));
  const Status status = load_checkpoint(*second.engine, posix_io(), saved).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("layers.2.attn_norm.weight is missing"), std::string_view::npos);
  EXPECT_NE(status.message().find("layers.0.mlp_in.weight is F32 [64, 32], the model has F32 [96, 32]"),
            std::string_view::npos);
}

TEST(CheckpointTest, TheNewestIsPassedOverWhenItIsNotWhole) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string good = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  run.train(1);
  const std::string bad = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  must(posix_io().remove_all(bad + "/v.safetensors"));
  EXPECT_EQ(must(newest_checkpoint(posix_io(), dir.path())), good);
}

}  // namespace
}  // namespace strata
