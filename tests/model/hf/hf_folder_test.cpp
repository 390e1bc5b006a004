// Which files of a folder are read, the errors for other kinds of folders, and weights that are not finite.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kFolderHidden = 24;

DecoderConfig small_llama() {
  DecoderConfig c = decoder_for_family("llama").value();
  c.layers = 2;
  c.hidden = kFolderHidden;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.ffn = 40;
  c.vocab = 31;
  c.positions = 64;
  return c;
}
Status folder_values(std::string_view, std::span<float> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<float>(i % 100) / 128.0f;
  return {};
}

class HfFilesTest : public ::testing::Test {
 protected:
  HfFilesTest() { must(export_hf(posix_io(), path, config, folder_values, {})); }
  void expect_refused(Code code, std::initializer_list<std::string> parts) const {
    const Status status = HfFolder::open(posix_io(), path).status();
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  const test::TempDir dir;
  const DecoderConfig config = small_llama();
  const std::string path = dir.file("model");
};

// Moments of the trained parameters alone: a file may lack a parameter, but not a part of one.
TEST_F(HfFilesTest, AFileOfTensorsHasWholeParameters) {
  const std::string file = dir.file("m.safetensors");
  const auto wanted = [](std::string_view param) { return !param.starts_with("layers.1."); };
  must(export_hf_tensors(posix_io(), file, config, wanted, folder_values));
  const auto tensors = must(HfFolder::open_tensors(posix_io(), file, config));
  EXPECT_TRUE(tensors->has("layers.0.qkv.weight"));
  EXPECT_FALSE(tensors->has("layers.1.qkv.weight"));
  std::vector<float> part(5), missing(5);
  must(tensors->read_part("layers.0.qkv.weight", 7, part));
  EXPECT_EQ(part[0], 7.0f / 128);
  EXPECT_EQ(tensors->read_part("layers.1.qkv.weight", 0, missing).code(), Code::not_found);

  std::string bytes = must(read_text(posix_io(), file, 1 << 20));
  bytes.replace(bytes.find("layers.0.self_attn.k_proj"), 25, "layers.0.self_attn.x_proj");
  must(write_text_atomically(posix_io(), file, bytes));
  const Status status = HfFolder::open_tensors(posix_io(), file, config).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.layers.0.self_attn.k_proj.weight is missing, and other parts of "
                        "layers.0.qkv.weight are there"));
}

// The layout of the hub's cache: every file of a snapshot is a symlink to a blob of its repository.
class HfHubTest : public HfFilesTest {
 protected:
  HfHubTest() {
    must(posix_io().make_dirs(repository + "/snapshots"));
    must(posix_io().make_dirs(repository + "/blobs"));
    must(posix_io().rename(path, snapshot));
    for (const char* name : {"config.json", "model.safetensors"}) {
      must(posix_io().rename(snapshot + "/" + name, repository + "/blobs/" + name));
      link(name, str("../../blobs/", name));
    }
  }
  void link(const std::string& name, const std::string& to) {
    must(posix_io().remove_all(snapshot + "/" + name));
    std::filesystem::create_symlink(to, snapshot + "/" + name);
  }
  Status opened(const std::string& where) { return HfFolder::open(posix_io(), where).status(); }
  const std::string repository = dir.file("models--a--b");
  const std::string snapshot = repository + "/snapshots/0123";
};

TEST_F(HfHubTest, SymlinksIntoTheBlobsOfItsRepositoryAreFollowed) {
  EXPECT_TRUE(opened(snapshot).is_ok()) << opened(snapshot).message();
  std::filesystem::create_symlink(snapshot, dir.file("mine"));
  EXPECT_TRUE(opened(dir.file("mine")).is_ok()) << "by a symlink to the snapshot";
}

TEST_F(HfHubTest, SymlinksToAnywhereElseAreRefusedByNameAndTarget) {
  const std::string other = dir.file("models--c--d/blobs");
  must(posix_io().make_dirs(other));
  must(posix_io().make_dirs(repository + "/blobs-of-mine"));
  for (const std::string& outside : {other, repository + "/blobs-of-mine", repository}) {
    std::filesystem::copy_file(repository + "/blobs/model.safetensors", outside + "/file");
    link("model.safetensors", outside + "/file");
    EXPECT_EQ(opened(snapshot).code(), Code::invalid);
    EXPECT_THAT(std::string(opened(snapshot).message()),
                HasSubstr(str("model.safetensors: a symlink to ", outside, "/file, which is neither")));
  }
  std::filesystem::copy_file(repository + "/blobs/config.json", other + "/config.json");
  link("config.json", other + "/config.json");
  EXPECT_THAT(std::string(opened(snapshot).message()),
              HasSubstr(str("config.json: a symlink to ", other, "/config.json, which is neither")));
  link("config.json", "../../blobs/config.json");
  link("model.safetensors", "../../blobs/nothing");
  EXPECT_EQ(opened(snapshot).code(), Code::not_found);
  EXPECT_THAT(std::string(opened(snapshot).message()), HasSubstr("a symlink to ../../blobs/nothing"));
}

TEST_F(HfHubTest, OnlySnapshotsMayLinkToBlobs) {
  must(posix_io().rename(repository + "/snapshots", repository + "/others"));
  EXPECT_EQ(opened(repository + "/others/0123").code(), Code::invalid);
}

// --- Other kinds of folders ---

TEST_F(HfFilesTest, APickledModelIsNamedWithWhatToDo) {
  must(posix_io().remove_all(path + "/model.safetensors"));
  must(write_text_atomically(posix_io(), path + "/pytorch_model.bin", "PK"));
  expect_refused(Code::unsupported,
                 {path + " holds its weights in pytorch_model.bin, a pickle", "save_pretrained"});
  must(posix_io().rename(path + "/pytorch_model.bin", path + "/pytorch_model.bin.index.json"));
  expect_refused(Code::unsupported, {"pytorch_model.bin.index.json, a pickle"});
  must(posix_io().rename(path + "/pytorch_model.bin.index.json", path + "/model-Q4.gguf"));
  expect_refused(Code::unsupported, {path + " has GGUF files: name one of them, " + path + "/model-Q4.gguf"});
}

TEST_F(HfFilesTest, AnAdapterIsNamedWithTheModelItIsOf) {
  must(posix_io().remove_all(path + "/model.safetensors"));
  must(write_text_atomically(posix_io(), path + "/adapter_config.json",
                             R"({"base_model_name_or_path": "org/base", "peft_type": "LORA"})"));
  expect_refused(Code::unsupported, {" is a PEFT adapter of org/base", ": base --adapter ",
                                     "to which you have downloaded org/base"});
  must(posix_io().remove_all(path + "/config.json"));
  expect_refused(Code::unsupported, {" is a PEFT adapter of org/base"});
  must(write_text_atomically(posix_io(), path + "/adapter_config.json", "{"));
  expect_refused(Code::unsupported, {" is a PEFT adapter, which has no weights of its own"});
}

TEST_F(HfFilesTest, ABaseWithASlashAtItsEndKeepsItsName) {
  must(posix_io().remove_all(path + "/model.safetensors"));
  must(write_text_atomically(posix_io(), path + "/adapter_config.json",
                             R"({"base_model_name_or_path": "models/nope/", "peft_type": "LORA"})"));
  expect_refused(Code::unsupported, {" is a PEFT adapter of models/nope,", ": nope --adapter ",
                                     "where nope is the folder to which you have downloaded models/nope"});
}

TEST_F(HfFilesTest, OnlyAPathWhoseFirstFolderIsNotHereMayBeAModelOfTheHub) {
  const std::string cwd = std::filesystem::current_path();
  std::filesystem::current_path(dir.file(""));
  must(posix_io().make_dirs("runs"));
  const Status typo = explain_hf_folder(posix_io(), "runs/typo");
  const Status model = explain_hf_folder(posix_io(), "Qwen/Qwen3-0.6B/");
  std::filesystem::current_path(cwd);
  EXPECT_TRUE(typo.is_ok()) << typo.message() << " - reading the folder reports the error";
  EXPECT_EQ(model.code(), Code::not_found);
  EXPECT_THAT(std::string(model.message()), HasSubstr("hf download Qwen/Qwen3-0.6B --local-dir"));
}

TEST_F(HfFilesTest, AModelNextToPickledWeightsIsRead) {
  must(write_text_atomically(posix_io(), path + "/pytorch_model.bin", "PK"));
  must(write_text_atomically(posix_io(), path + "/adapter_config.json", "{}"));
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value());
}

// --- Values that are not finite ---

TEST_F(HfFilesTest, ANonFiniteWeightNamesItsTensorAndElement) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string other = dir.file(std::string(to_string(dtype)));
    must(export_hf(posix_io(), other, config, folder_values, {.dtype = dtype}));
    const auto folder = must(HfFolder::open(posix_io(), other));
    const auto file = must(SafetensorsFile::open(posix_io(), other + "/model.safetensors"));
    const SafetensorsEntry entry = *file->find("model.layers.1.mlp.down_proj.weight");
    std::fstream raw(other + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    raw.read(reinterpret_cast<char*>(&header), 8);
    const std::size_t width = size_of(dtype);
    raw.seekp(static_cast<std::streamoff>(8 + header + entry.offset + 7 * width));
    raw.write("\xFF\xFF\xFF\x7F" + (4 - width), static_cast<std::streamsize>(width));
    raw.close();
    const auto tensors = hf_tensors(config);
    const auto tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const HfTensor& t) { return t.name == entry.name; });
    std::vector<float> values(kFolderHidden * 40);
    const Status status = folder->read(tensor->param, values);
    EXPECT_EQ(status.code(), Code::corrupt) << status.message();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("element 7 of model.layers.1.mlp.down_proj.weight is nan"))
        << to_string(dtype);
  }
}

TEST_F(HfFilesTest, NoValueIsExportedThatTheFileCannotHold) {
  const auto with = [](float value) {
    return [value](std::string_view param, std::span<float> into) {
      STRATA_TRY(folder_values(param, into));
      if (param == "final_norm.weight") into[5] = value;
      return Status::ok();
    };
  };
  const auto refusal = [&](float value, DType dtype, Code code) {
    const Status status = export_hf(posix_io(), dir.file("other"), config, with(value), {.dtype = dtype});
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_FALSE(posix_io().exists(dir.file("other")));
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(NAN, DType::f32, Code::diverged), HasSubstr("element 5 of model.norm.weight is nan"));
  EXPECT_THAT(refusal(-INFINITY, DType::bf16, Code::diverged),
              HasSubstr("element 5 of model.norm.weight is -inf"));
  EXPECT_THAT(
      refusal(70000.0f, DType::f16, Code::invalid),
      HasSubstr("element 5 of model.norm.weight is 70000, which f16 cannot hold: export as f32 or bf16"));
  EXPECT_THAT(refusal(3.4e38f, DType::bf16, Code::invalid),
              HasSubstr("which bf16 cannot hold: export as f32"));
  must(export_hf(posix_io(), dir.file("other"), config, with(65504.0f), {.dtype = DType::f16}));
}

}  // namespace
}  // namespace strata
