// The messages of a run about itself and its inputs, and refusals that name the input.
#include <filesystem>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using namespace std::string_view_literals;

std::size_t times(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++n;
  return n;
}

class CliMessagesE2e : public CliE2e {
 protected:
  void make_folder(const std::string& family = "gpt2") {
    ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2", "model.family=" + family})).exit_code,
              0);
    const ProgramResult exported = strata({"export", "run", "--out", "hf"});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
  }
  void edit_config(const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json config = nlohmann::json::parse(read_all(file("hf/config.json")));
    edit(config);
    write("hf/config.json", config.dump());
  }
  void expect_refused(const Words& words, int code, const std::string& says) const {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, code) << refused.output();
    EXPECT_THAT(refused.err, HasSubstr(says));
  }
};

// --- At the start ---

TEST_F(CliMessagesE2e, UnsupportedTrainingSettingsOfAFolderAreReportedOnce) {
  make_folder();
  const Words words = tiny("train", {"--init", "hf", "--out", "again", "train.steps=3"});
  EXPECT_THAT(strata(words).out, Not(HasSubstr("for training"))) << "the export asks for no dropout";
  edit_config([](nlohmann::json& config) {
    config["attn_pdrop"] = 0.25;
    config.erase("resid_pdrop");  // GPT-2's default then applies
    config["summary_first_dropout"] = 0.5;
  });
  const std::string says = "hf/config.json specifies attn_pdrop = 0.25, resid_pdrop = 0.1 for training";
  const ProgramResult trained = strata(tiny("train", {"--init", "hf", "--out", "other", "train.steps=3"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(times(trained.out, says), 1u) << trained.out;
  EXPECT_THAT(strata(tiny("plan", {"model.from=hf"})).out, HasSubstr(says));
}

TEST_F(CliMessagesE2e, AWarmUpLongerThanTheRunIsReported) {
  const std::string says = "optim.warmup = 7 is longer than the run of train.steps = 3";
  EXPECT_THAT(strata(tiny("train", {"--out", "run", "train.steps=3", "optim.warmup=7"})).out,
              HasSubstr(says));
  EXPECT_THAT(strata(tiny("train", {"--out", "other", "train.steps=3", "optim.warmup=3"})).out,
              Not(HasSubstr("optim.warmup")));
}

// --- Data ---

TEST_F(CliMessagesE2e, BinaryDataIsRefusedWithItsNameAndOffset) {
  ASSERT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "512", "-o", "t.json"}).exit_code, 0);
  write("wide.txt", std::string("\xFF\xFEJ\0a\0n\0e\0"sv));
  write("binary.txt", "PNG" + std::string("\0\x1A\0"sv) + std::string(2000, 'x'));
  write("latin.txt", std::string(3000, 'x') + std::string(100, '\xE9'));
  const auto expect = [&](const std::string& name, const std::string& says) {
    for (const char* tokenizer : {"data.tokenizer=auto", "data.tokenizer=t.json"})
      for (const char* key : {"data.train=", "data.val="})
        expect_refused(tiny("train", {"--out", "run", key + name, tokenizer}), 2, says);
    expect_refused({"tokenizer", "train", name, "-o", "other.json"}, 2, says);
    expect_refused({"data", "pack", name, "-t", "t.json", "-o", "packed"}, 2, says);
  };
  expect("wide.txt", "wide.txt: begins with the byte order mark of UTF-16");
  expect("binary.txt", "binary.txt: byte 3 is NUL");
  expect("latin.txt", "latin.txt: 100 of its 3100 bytes (3.2 %) are not UTF-8, the first is byte 3000");
  EXPECT_FALSE(exists("run") || exists("other.json") || exists("packed"));
}

TEST_F(CliMessagesE2e, AFewInvalidBytesInDataAreAcceptedAndReported) {
  write("mixed.txt", austen("pride_and_prejudice").substr(0, 20000) + "\xE9");
  EXPECT_THAT(strata(tiny("train", {"--out", "run", "train.steps=1", "data.train=mixed.txt"})).out,
              HasSubstr("mixed.txt: 1 of its 20001 bytes are not UTF-8, the first is byte 20000"));
}

TEST_F(CliMessagesE2e, ATokenizerIsNotTrainedOnEmptyText) {
  write("empty.txt", "");
  expect_refused({"tokenizer", "train", "empty.txt", "-o", "t.json"}, 2,
                 "the corpus is empty: 1 empty file; the first is empty.txt");
  EXPECT_FALSE(exists("t.json"));
  write("short.txt", "aaaa");
  EXPECT_THAT(strata({"tokenizer", "train", "short.txt", "-o", "t.json", "--vocab", "300"}).out,
              HasSubstr("258 of the 300 requested"));
}

// --- Files ---

TEST_F(CliMessagesE2e, FilesOfARunHaveThePermissionsOfTheUmask) {
  options_.before_exec = [] {
    ::umask(027);
    return true;
  };
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2", "checkpoint.every=1"})).exit_code, 0);
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  std::size_t files = 0;
  for (const char* folder : {"run", "hf"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(file(folder))) {
      struct stat info {};
      ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, entry.is_directory() ? 0750u : 0640u) << entry.path();
      ++files;
    }
  EXPECT_GT(files, 15u);
}

// --- Folders ---

TEST_F(CliMessagesE2e, FoldersWithoutAModelAreReportedForWhatTheyAre) {
  make_folder();
  must(posix_io().rename(file("hf/model.safetensors"), file("hf/pytorch_model.bin")));
  const std::string pickled = "hf holds its weights in pytorch_model.bin, a pickle";
  expect_refused(tiny("train", {"--init", "hf", "--out", "other"}), 2, pickled);
  expect_refused({"generate", "hf", "--prompt", "a"}, 2, pickled);
  expect_refused({"eval", "hf", "--data", "val.txt"}, 2, pickled);
  must(posix_io().make_dirs(file("adapter")));
  write("adapter/adapter_config.json", R"({"base_model_name_or_path": "org/base"})");
  const std::string peft = "adapter is a PEFT adapter of org/base";
  expect_refused(tiny("train", {"--init", "adapter", "--out", "other"}), 2, peft);
  expect_refused({"generate", "adapter", "--prompt", "a"}, 2, peft);
  expect_refused({"eval", "adapter", "--data", "val.txt"}, 2, peft);
}

TEST_F(CliMessagesE2e, ANanWeightIsReportedByEveryVerbThatReadsIt) {
  make_folder();
  const std::string weights = file("hf/model.safetensors");
  std::string bytes = read_all(weights);
  bytes.replace(bytes.size() - 4, 4, "\x00\x00\xC0\x7F"sv);  // the last element of the last tensor
  write("hf/model.safetensors", bytes);
  const std::string says = "is nan; weights must be finite";
  expect_refused(tiny("train", {"--init", "hf", "--out", "other"}), 5, says);
  expect_refused({"generate", "hf", "--prompt", "a"}, 5, says);
  expect_refused({"eval", "hf", "--data", "val.txt"}, 5, says);
}

TEST_F(CliMessagesE2e, JsonOfGenerateHasTheTokensItReadAndWrote) {
  make_folder();
  const ProgramResult made = strata(
      {"generate", "run", "--prompt", "It is a truth", "--tokens", "5", "--temperature", "0", "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto parsed = nlohmann::json::parse(made.out);
  const auto decoded = [&](const nlohmann::json& ids) {
    Words words = {"tokenizer", "decode", "-t", "run/tokenizer.json"};
    for (const int id : ids) words.push_back(str(id));
    return strata(words).out;
  };
  EXPECT_EQ(parsed["prompt_ids"].size(), parsed["n_prompt_tokens"]);
  EXPECT_EQ(parsed["ids"].size(), parsed["n_tokens"]);
  EXPECT_EQ(decoded(parsed["prompt_ids"]), "It is a truth\n");
  EXPECT_EQ(decoded(parsed["ids"]), parsed["text"].get<std::string>() + "\n");
}

}  // namespace
}  // namespace strata::test
