// Runs that keep a moving average of their parameters.
#include <strata/runtime/io/safetensors.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CliEmaE2e : public CliE2e {
 protected:
  std::vector<float> tensor(const std::string& path, const std::string& name) const {
    const auto opened = must(SafetensorsFile::open(posix_io(), file(path)));
    const SafetensorsEntry* const entry = opened->find(name);
    EXPECT_NE(entry, nullptr) << path << " has no " << name;
    std::vector<float> values(entry == nullptr ? 0 : static_cast<std::size_t>(entry->bytes) / sizeof(float));
    if (entry != nullptr) must(opened->read_range(*entry, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
};

TEST_F(CliEmaE2e, TheAverageIsSavedResumedAndExported) {
  const Words settings = {"model.family=llama", "train.steps=6", "train.eval_every=0", "optim.ema_decay=0.5",
                          "memory.nvme_dir=nvme"};
  const auto with = [&](Words words) {
    words.insert(words.end(), settings.begin(), settings.end());
    return words;
  };
  const ProgramResult whole = strata(tiny("train", with({"--out", "whole"})));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const ProgramResult part = strata(
      tiny("train", with({"--out", "part", "train.max_time=0s", "memory.nvme=1GiB", "offload.policy=nvme"})));
  ASSERT_EQ(part.exit_code, 0) << part.err;
  ASSERT_EQ(strata({"train", "--resume", "part", "train.max_time=none"}).exit_code, 0);
  EXPECT_EQ(digest("part"), digest("whole"));

  const std::string saved = "whole/checkpoints/step-00000006/";
  const std::string here = "layers.1.mlp_out.weight", there = "model.layers.1.mlp.down_proj.weight";
  const ProgramResult average =
      strata({"export", "whole", "--out", "average", "--ema", "--dtype", "f32", "--check"});
  ASSERT_EQ(average.exit_code, 0) << average.err;
  ASSERT_EQ(strata({"export", "whole", "--out", "newest", "--dtype", "f32"}).exit_code, 0);
  EXPECT_EQ(tensor("average/model.safetensors", there), tensor(saved + "ema.safetensors", here));
  EXPECT_EQ(tensor("newest/model.safetensors", there), tensor(saved + "param.safetensors", here));
  EXPECT_NE(tensor("average/model.safetensors", there), tensor("newest/model.safetensors", there));
  for (const char* model : {"average", "whole"}) {
    const ProgramResult text = strata({"generate", model, "--prompt", "She", "--tokens", "3"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
  }
}

TEST_F(CliEmaE2e, WhereNoAverageIsKeptTheMessagesSayWhy) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2", "train.eval_every=0"})).exit_code, 0);
  const ProgramResult none = strata({"export", "run", "--out", "hf", "--ema"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("run/checkpoints/step-00000002 has no moving average of the parameters: "
                                  "the run was trained with optim.ema_decay = 0"));
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.steps=4", "optim.ema_decay=0.9"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("optim.ema_decay"));
  const ProgramResult galore = strata(
      tiny("train", {"--out", "other", "optim.name=galore", "optim.weight_decay=0", "optim.ema_decay=0.9"}));
  EXPECT_EQ(galore.exit_code, 2);
  EXPECT_THAT(galore.err, HasSubstr("optim.ema_decay = 0.9, but optim.name is galore"));
}

}  // namespace
}  // namespace strata::test
