// What `auto` takes on a machine with a GPU, which is a fake CUDA runtime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>
#include <strata/plan/job.h>
#include <strata/plan/starter_config.h>
#include <strata/profile/profile_cache.h>
#include <strata/runtime/backend/cuda_device.h>

#include "support/fake_cudart.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

LoadedConfig load(const std::vector<std::string>& more = {}) {
  std::vector<std::string> items = {"model.family=llama",  "model.layers=2",      "model.hidden=256",
                                    "model.heads=4",       "model.ffn=512",       "model.vocab=512",
                                    "model.seq=64",        "train.micro_batch=1", "data.train=a.txt",
                                    "memory.pinned=64MiB", "memory.device=64MiB"};
  items.insert(items.end(), more.begin(), more.end());
  return must(load_config(ConfigRequest{.items = items}));
}
std::string backend_of(LoadedConfig loaded) {
  resolve_backend(loaded);
  return loaded.config.memory.backend + ": " + loaded.tree.entry("memory.backend").why;
}

TEST(GpuChoiceTest, ARunTakesTheGpuAndNamesIt) {
  EXPECT_EQ(backend_of(load()), "cuda: fake GPU");
  EXPECT_EQ(starter_backend(), "cuda");
  LoadedConfig loaded = load();
  must(plan_job(loaded));
  EXPECT_EQ(loaded.config.train.dtype, "bf16");
  EXPECT_TRUE(loaded.config.train.attention_backend.ends_with("mma"))
      << loaded.config.train.attention_backend;
}

// Evaluation plans no training, and decides for the GPU as well.
TEST(GpuChoiceTest, ProgramsOfAnEvaluationAreRecordedForTheGpu) {
  for (const std::string objective : {"lm", "dpo"}) {
    LoadedConfig loaded = load({"train.objective=" + objective});
    ASSERT_TRUE(plan_evaluation(loaded).has_value()) << objective;
    EXPECT_EQ(loaded.config.memory.backend, "cuda");
    EXPECT_TRUE(loaded.config.train.attention_backend.ends_with("mma"));
  }
}

TEST(GpuChoiceTest, TheHostComputesIfTheUserOrTheMachineSaysSo) {
  LoadedConfig asked = load({"memory.backend=host"});
  resolve_backend(asked);
  EXPECT_EQ(asked.config.memory.backend, "host");
  must(plan_job(asked));
  EXPECT_EQ(asked.config.train.attention_backend, "mma");
  EXPECT_THAT(asked.tree.entry("train.attention_backend").why, HasSubstr("does not depend on it"));

  LoadedConfig shared = load();
  shared.config.parallel.local_ranks = 3;
  shared.config.parallel.transport = "threads";
  EXPECT_THAT(backend_of(shared), HasSubstr("host: 3 ranks on this machine, but 1 GPU"));

  test::fail_next_cuda("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  EXPECT_THAT(backend_of(load()), HasSubstr("host: "));
}

TEST(GpuChoiceTest, WithoutAStoredProfileAGpuHasTheShippedOneOfItsName) {
  const auto found = [] {
    return must(load_local_profile(posix_io(), {"XDG_CACHE_HOME=/nowhere"}, "cuda", 2));
  };
  EXPECT_FALSE(found().profile.has_value());
  test::name_gpu("NVIDIA H100 80GB HBM3");
  const CachedProfile shipped = found();
  test::name_gpu("fake GPU");
  ASSERT_TRUE(shipped.profile.has_value());
  EXPECT_EQ(shipped.profile->name, "h100-80gb");
  EXPECT_EQ(shipped.profile->cores, 2);
  EXPECT_NE(shipped.profile->memory[0], must(load_machine_profile("h100-80gb")).memory[0])
      << "of this machine";
  EXPECT_EQ(shipped.profile->read_bytes_per_s, 0) << "the disk is another one";
  EXPECT_THAT(shipped.warning,
              HasSubstr("shipped profile h100-80gb, since NVIDIA H100 80GB HBM3 was not measured"));
}

}  // namespace
}  // namespace strata
