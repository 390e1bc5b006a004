#include <strata/session/checkpoint.h>

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "engine/tiny_run.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::TempDir;
using test::tiny_programs;
using test::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

SessionOptions three_tiers(const std::string& dir) {
  SessionOptions options;
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

  TinyRun first(must(Engine::plan(tiny_programs(Recompute::full), three_tiers(dir.path()))));
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

// Its manifest has digests of bytes in a row, and its files another order.
TEST(CheckpointTest, ACheckpointOfAnEarlierVersionIsContinued) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  run.train(2);
  const std::string digest = must(run.engine->state_digest());
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  Manifest manifest = must(read_manifest(posix_io(), saved));
  EXPECT_EQ(manifest.version, 3);
  manifest.version = 2;
  for (CheckpointFile& file : manifest.files) {
    const auto tensors = must(SafetensorsFile::open(posix_io(), saved + "/" + file.name));
    for (const SafetensorsEntry& entry : tensors->entries()) {
      std::vector<std::byte> bytes(entry.bytes);
      must(tensors->read(entry.name, bytes));
      file.tensors[entry.name] = to_hex(digest_of(bytes));
    }
  }
  must(write_text_atomically(posix_io(), saved + "/manifest.json", to_json(manifest)));
  TinyRun resumed(must(Engine::plan(tiny_programs(), {})));
  must(load_checkpoint(*resumed.engine, posix_io(), saved).status());
  EXPECT_EQ(must(resumed.engine->state_digest()), digest);
  manifest.files[0].tensors.begin()->second[0] ^= 1;
  must(write_text_atomically(posix_io(), saved + "/manifest.json", to_json(manifest)));
  EXPECT_EQ(load_checkpoint(*resumed.engine, posix_io(), saved).status().code(), Code::corrupt);
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

TEST(CheckpointTest, ANonFiniteValueIsReportedWithItsTensorAndElement) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  std::string name;
  must(run.engine->fill(Payload::m, [&](const StatePiece& piece, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
    if (name.empty() && values.size() > 2) {
      name = piece.name;
      values[2] = INFINITY;
    }
    return Status::ok();
  }));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  TinyRun other(must(Engine::plan(tiny_programs(), {})));
  const Status status = load_checkpoint(*other.engine, posix_io(), saved).status();
  EXPECT_EQ(status.code(), Code::diverged);
  EXPECT_NE(status.message().find(str(saved, ": element 2 of ", name, " (m) is inf")), std::string_view::npos)
      << status.message();
}

TEST(CheckpointTest, AFlippedBitIsFoundNamedAndNeverTrainedOn) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  const std::string digest = must(run.engine->state_digest());
  const auto put = [&](int byte) {
    std::FILE* file = std::fopen((saved + "/m.safetensors").c_str(), "r+b");
    std::fseek(file, -5, SEEK_END);
    std::fputc(byte, file);
    std::fclose(file);
  };
  put(1);
  const Status status = load_checkpoint(*run.engine, posix_io(), saved).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("m.safetensors: "), HasSubstr(" is damaged: its digest is ")));
  EXPECT_NE(run.engine->state_digest().status().message().find("was interrupted"), std::string_view::npos);
  put(0);
  must(load_checkpoint(*run.engine, posix_io(), saved));
  EXPECT_EQ(must(run.engine->state_digest()), digest);
}

// A disk may return other bytes when a tensor is read again, so the bytes that are checked must be those that
// are used.
TEST(CheckpointTest, TheBytesThatFillTheEngineAreTheBytesThatWereChecked) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  test::FaultIo counting(posix_io(), 1);
  must(load_checkpoint(*run.engine, counting, saved));
  const std::uint64_t reads = counting.calls(test::IoCall::read);
  std::size_t found = 0;
  for (std::uint64_t nth = 1; nth <= reads; ++nth) {
    test::FaultIo io(posix_io(), nth);
    io.add({test::IoCall::read, test::FaultKind::flip, nth});
    found += load_checkpoint(*run.engine, io, saved).has_value() ? 0 : 1;
  }
  EXPECT_EQ(found, reads);
}

TEST(CheckpointTest, DraftsOfInterruptedSavesAreRemovedFirstAndNoOtherName) {
  const TempDir dir;
  const std::vector<std::string> drafts = {".unfinished-step-00000004-4711", ".unfinished-step-00000005-1"},
                                 others = {".unfinished-", ".unfinished-step-4-1",
                                           ".unfinished-step-00000004-x", "my.unfinished-step-00000004-1",
                                           "notes"};
  for (const auto& names : {drafts, others})
    for (const std::string& name : names) must(posix_io().make_dirs(dir.file(name)));
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  test::FaultIo io(posix_io(), 1);
  io.add({test::IoCall::write, test::FaultKind::fail, 1, true, Code::no_space});
  EXPECT_EQ(save_checkpoint(*run.engine, io, dir.path(), {}, 0).status().code(), Code::no_space);
  for (const std::string& name : drafts) EXPECT_FALSE(posix_io().exists(dir.file(name))) << name;
  for (const std::string& name : others) EXPECT_TRUE(posix_io().exists(dir.file(name))) << name;
}

TEST(CheckpointTest, ACheckpointMovedAsideByAKilledSaveIsRestored) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  must(posix_io().rename(saved, dir.file(".unfinished-step-00000000-4711.replaced")));
  must(clear_drafts(posix_io(), dir.path()));
  EXPECT_EQ(must(newest_checkpoint(posix_io(), dir.path())), saved);
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

TEST(CheckpointTest, AnIncompleteNewestCheckpointIsSkipped) {
  const TempDir dir;
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(3));
  const std::string good = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  run.train(1);
  const std::string bad = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 0));
  must(posix_io().remove_all(bad + "/v.safetensors"));
  EXPECT_EQ(must(newest_checkpoint(posix_io(), dir.path())), good);
  std::vector<std::string> warnings;
  const auto warn = [&](std::string_view text) { warnings.emplace_back(text); };
  EXPECT_EQ(must(complete_checkpoints(posix_io(), dir.path(), warn)).front(), good);
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings.front().find(" is damaged: "), std::string::npos) << warnings.front();
  EXPECT_NE(warnings.front().find("; using " + good), std::string::npos) << warnings.front();
}

}  // namespace
}  // namespace strata
