// A manifest is accepted completely or not at all.
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/session/manifest.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Manifest example() {
  Manifest manifest;
  manifest.step = 12;
  manifest.files = {{"param.safetensors", 123, "00ff", {{"head", "aa"}, {"tail", "bb"}}},
                    {"m.safetensors", 7, "11ee", {{"head", "cc"}}}};
  manifest.run = {{"data", "abc"}, {"train.seed", "1"}};
  return manifest;
}

/// A manifest that leaves out two frozen tensors.
Manifest example_without_frozen() {
  Manifest manifest = example();
  manifest.frozen = {{"body", "dd"}, {"neck", "ee"}};
  manifest.version = manifest.needed_version();
  return manifest;
}

/// A manifest that `edit` has changed, with a matching digest.
template <class Edit>
std::string signed_text(const Edit& edit, const Manifest& of = example()) {
  json manifest = json::parse(to_json(of));
  manifest.erase("digest");
  edit(manifest);
  const std::string text = manifest.dump(2);
  manifest["digest"] = to_hex(digest_of(std::as_bytes(std::span(text))));
  return manifest.dump(2);
}
template <class Edit>
Status read_with(const Edit& edit, const Manifest& of = example()) {
  return manifest_from_json(signed_text(edit, of)).status();
}

TEST(ManifestTest, ReadsBackAsItWasWritten) {
  const Manifest read = must(manifest_from_json(to_json(example())));
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.files, example().files);
  EXPECT_EQ(read.run, example().run);
}

TEST(ManifestTest, WhatItLeavesOutReadsBackAndNeedsAVersionThatOlderProgramsRefuse) {
  const Manifest read = must(manifest_from_json(to_json(example_without_frozen())));
  EXPECT_EQ(read.frozen, example_without_frozen().frozen);
  EXPECT_EQ(read.files, example().files);
  EXPECT_GT(read.version, Manifest::kVersion);
  EXPECT_EQ(example().needed_version(), Manifest::kVersion);
  EXPECT_THAT(to_json(example()), Not(HasSubstr("frozen")));
}

TEST(ManifestTest, AListOfLeftOutTensorsThatDoesNotFitIsRefused) {
  const auto problem = [](const auto& edit, const Manifest& of) {
    const Status status = read_with(edit, of);
    EXPECT_EQ(status.code(), Code::corrupt);
    return std::string(status.message());
  };
  EXPECT_THAT(problem(
                  [](json& m) {
                    m["frozen"] = {{"body", "dd"}};
                  },
                  example()),
              HasSubstr("unknown key 'frozen'"));
  const Manifest left_out = example_without_frozen();
  EXPECT_THAT(problem([](json& m) { m["frozen"]["head"] = "ff"; }, left_out),
              HasSubstr("it lists head as left out and in param.safetensors"));
  EXPECT_THAT(problem([](json& m) { m["frozen"] = json::object(); }, left_out),
              HasSubstr("its version is 4, but it leaves out nothing"));
  EXPECT_THAT(problem([](json& m) { m.erase("frozen"); }, left_out), HasSubstr("frozen"));
  EXPECT_THAT(problem([](json& m) { m["frozen"]["body"] = 7; }, left_out), HasSubstr("type must be string"));
}

TEST(ManifestTest, EverySingleBitFlipIsRefusedOrReadsTheSame) {
  const std::string text = to_json(example_without_frozen());
  std::size_t refused = 0;
  for (std::size_t byte = 0; byte < text.size(); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      const auto read = manifest_from_json(flipped);
      refused += read.has_value() ? 0 : 1;
      EXPECT_EQ(read.has_value() ? to_json(*read) : text, text) << "byte " << byte << " bit " << bit;
    }
  EXPECT_GT(refused, text.size() * 7);
}

TEST(ManifestTest, AnotherVersionIsRefusedByItsNumber) {
  for (const int version : {0, 1, Manifest::kNewest + 1}) {
    const Status status = read_with([&](json& m) { m["version"] = version; });
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(std::string(status.message()), HasSubstr(str("its version is ", version)));
  }
}

TEST(ManifestTest, AKeyThatIsNotKnownIsRefusedByName) {
  const auto expect_named = [](const Status& status, const char* key) {
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr(str("'", key, "'")));
  };
  expect_named(read_with([](json& m) { m["extra"] = 1; }), "extra");
  expect_named(read_with([](json& m) { m["files"][0]["size"] = 1; }), "size");
  expect_named(read_with([](json& m) {
                 m["loss_scale"] = {{"value", 2}, {"good_steps", 1}, {"bad", 1}};
               }),
               "bad");
}

TEST(ManifestTest, AFileThatIsListedTwiceIsRefused) {
  const Status status = read_with([](json& m) { m["files"].push_back(m["files"][0]); });
  EXPECT_EQ(status.message(), "it lists the file param.safetensors twice");
}

TEST(ManifestTest, EqualKeysAndDeepNestingAreRefused) {
  const auto problem = [](const std::string& text) {
    const auto read = manifest_from_json(text);
    EXPECT_EQ(read.status().code(), Code::corrupt);
    return std::string(read.status().message());
  };
  EXPECT_THAT(problem(R"({"step": 1, "step": 2})"), HasSubstr("the key 'step' is there twice"));
  EXPECT_THAT(problem(std::string(1'000'000, '[')), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(problem("{"), HasSubstr("parse error at line 1"));
}

TEST(ManifestTest, AValueThatIsNotACountIsRefusedByName) {
  EXPECT_EQ(read_with([](json& m) { m["files"][0]["bytes"] = 1e300; }).message(),
            "its bytes is 1e+300, which is not a count up to 9223372036854775807");
  for (const json& value :
       {json(-1), json(1.5), json(1e300), json("1"), json(nullptr), json(~std::uint64_t{0})}) {
    EXPECT_EQ(read_with([&](json& m) { m["version"] = value; }).code(), Code::corrupt) << value;
    EXPECT_EQ(read_with([&](json& m) { m["step"] = value; }).code(), Code::corrupt) << value;
    EXPECT_EQ(read_with([&](json& m) { m["files"][0]["bytes"] = value; }).code(), Code::corrupt) << value;
  }
}

TEST(ManifestTest, ALossScaleThatIsNotAPowerOfTwoIsRefused) {
  const auto with_scale = [](int value) {
    return read_with([=](json& m) { m["loss_scale"] = {{"value", value}, {"good_steps", 0}}; });
  };
  EXPECT_TRUE(with_scale(8).is_ok());
  EXPECT_EQ(with_scale(6).code(), Code::corrupt);
}

TEST(ManifestTest, NoByteOfItReachesATerminalRaw) {
  const Status status = read_with([](json& m) { m["\x1b[2J"] = 1; });
  EXPECT_THAT(std::string(status.message()), HasSubstr("'\\x1b[2J'"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\x1b")));
}

TEST(ManifestTest, AFolderNamedForAnotherStepIsRefusedWithBothSteps) {
  const test::TempDir dir;
  const std::string folder = dir.file("step-00000013");
  must(posix_io().make_dirs(folder));
  must(write_text_atomically(posix_io(), folder + "/manifest.json", to_json(example())));
  const Status status = read_manifest(posix_io(), folder + "/").status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the manifest is for step 12, but its folder is named for step 13"));
}

}  // namespace
}  // namespace strata
