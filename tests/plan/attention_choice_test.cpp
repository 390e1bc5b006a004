// Which attention kernels a run on a GPU prefers, by the rates of a profile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>
#include <strata/kernels/values/attention_order.h>
#include <strata/plan/job.h>

namespace strata {
namespace {

using kernels::AttentionBackend;
using ::testing::HasSubstr;

std::string chosen(const MachineProfile& machine, std::vector<std::string> more = {}) {
  std::vector<std::string> items = {"model.family=llama",  "model.layers=2",      "model.hidden=256",
                                    "model.heads=4",       "model.ffn=512",       "model.vocab=512",
                                    "model.seq=64",        "train.micro_batch=1", "train.dtype=bf16",
                                    "memory.backend=cuda", "data.train=a.txt"};
  items.insert(items.end(), more.begin(), more.end());
  LoadedConfig loaded = must(load_config(ConfigRequest{.items = items}));
  must(plan_job(loaded, {.profile = &machine, .other_machine = true}));
  const ConfigEntry& entry = loaded.tree.entry("train.attention_backend");
  EXPECT_EQ(entry.automatic, more.empty());
  return loaded.config.train.attention_backend;
}

TEST(AttentionChoiceTest, TheFastestComesFirstInEachDirection) {
  MachineProfile machine = must(load_machine_profile("h100-80gb"));
  EXPECT_EQ(chosen(machine), "cudnn,wgmma,mma");
  machine.wgmma_attention_backward_flops_per_s = 900e12;
  EXPECT_EQ(chosen(machine), "cudnn,wgmma,mma/wgmma,cudnn,mma");
  machine.cudnn_attention_flops_per_s = machine.cudnn_attention_backward_flops_per_s = 0;
  EXPECT_EQ(chosen(machine), "wgmma,mma") << "a machine without cuDNN";
  machine.attention_backward_flops_per_s = 999e12;
  EXPECT_EQ(chosen(machine), "wgmma,mma/mma") << "nothing is refused by mma, so nothing comes after it";
  EXPECT_EQ(chosen(machine, {"train.attention_backend=mma"}), "mma");
}

TEST(AttentionOrderTest, NamesAreParsedAndOthersRefused) {
  using enum AttentionBackend;
  using Order = std::vector<AttentionBackend>;
  const auto both = must(kernels::parse_attention_order("cudnn,mma"));
  EXPECT_EQ(both.forward, (Order{cudnn, mma}));
  EXPECT_EQ(both.backward, both.forward);
  const auto two = must(kernels::parse_attention_order("wgmma/cudnn,wgmma"));
  EXPECT_EQ(two.forward, (Order{wgmma}));
  EXPECT_EQ(two.backward, (Order{cudnn, wgmma}));
  const auto refusal = [](std::string_view text) {
    return std::string(kernels::parse_attention_order(text).status().message());
  };
  EXPECT_EQ(refusal("flash"), "'flash' in 'flash' is no attention backend; they are mma, wgmma and cudnn");
  EXPECT_THAT(refusal("cudnn,"), HasSubstr("'' in 'cudnn,' is no attention backend"));
  EXPECT_THAT(refusal("mma/host"), HasSubstr("'host'"));
  EXPECT_EQ(refusal("mma,mma"), "'mma,mma' names mma twice");
  const Status loaded = load_config(ConfigRequest{.items = {"train.attention_backend=flash"}}).status();
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("train.attention_backend: 'flash'"));
}

}  // namespace
}  // namespace strata
