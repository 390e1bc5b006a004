// Layers that predict further tokens are exported with the text model in front of them.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/convert.h>

#include "model/hf/opened_folder.h"
#include "model/hf/whole_folder.h"

namespace strata {
namespace {

using kernels::WeightFormat;
using nlohmann::json;

struct ExtraKind {
  const char *family, *type, *beginning, *key;
};
const ExtraKind kExtraKinds[] = {
    {"deepseek_v3", "deepseek_v3", "model.layers.2.", "num_nextn_predict_layers"},
    {"deepseek_v3", "deepseek_v32", "model.layers.2.", "num_nextn_predict_layers"},
    {"deepseek_v3", "kimi_k25", "language_model.model.layers.2.", "num_nextn_predict_layers"},
    {"glm4_moe", "glm4_moe", "model.layers.2.", "num_nextn_predict_layers"},
    {"glm4_moe_lite", "glm4_moe_lite", "model.layers.2.", "num_nextn_predict_layers"},
    {"nemotron_h", "nemotron_h", "mtp.layers.0.", "num_nextn_predict_layers"},
    {"qwen3_next", "qwen3_next", "mtp.layers.0.", "num_nextn_predict_layers"},
    {"qwen3_5_moe_text", "qwen3_5_moe_text", "mtp.layers.0.", "mtp_num_hidden_layers"},
    {"qwen3_5_text", "qwen3_5", "mtp.layers.0.", "mtp_num_hidden_layers"}};

class ExtraLayersTest : public ::testing::TestWithParam<ExtraKind> {
 protected:
  ExtraLayersTest() {
    source.add_extra_layer(GetParam().beginning);
    text_in(source.root)[GetParam().key] = 1;
  }
  static json& text_in(json& root) { return root.contains("text_config") ? root["text_config"] : root; }

  OtherParts record() const {
    source.write();
    return must(digest_other_parts(posix_io(), source.path)).value();
  }
  Status exported(const std::optional<OtherParts>& parts, DType dtype = DType::f32) const {
    HfExport options;
    options.dtype = dtype;
    options.source_config = source.root.dump();
    options.others = parts;
    return export_hf(posix_io(), out, config, test::values_named, options);
  }
  std::map<std::string, test::StoredBytes> tensors_out() const {
    std::map<std::string, test::StoredBytes> found;
    for (const std::string& name : must(posix_io().list(out))) {
      if (!name.ends_with(".safetensors")) continue;
      const auto file = must(SafetensorsFile::open(posix_io(), out + "/" + name));
      for (const SafetensorsEntry& entry : file->entries()) {
        test::StoredBytes& stored =
            found[entry.name] = {entry.dtype, entry.shape, std::string(entry.bytes, '\0')};
        must(file->read(entry.name, std::as_writable_bytes(std::span(stored.bytes))));
      }
    }
    return found;
  }
  json config_out() const {
    json root = json::parse(must(read_text(posix_io(), out + "/config.json", std::uint64_t{1} << 24)));
    return text_in(root);
  }
  /// Adds a quantized matrix to the extra layer, and says so in config.json. Returns what its values are in
  /// bf16.
  test::StoredBytes add_quantized(WeightFormat format, const std::string& name) {
    test::OpenedFolder folder(test::quantized_config_of("llama", format), format);
    const auto tensors = hf_tensors(test::quantized_config_of("llama", format));
    const HfTensor& of = *std::find_if(tensors.begin(), tensors.end(), [](const HfTensor& tensor) {
      return tensor.name == "model.layers.0.mlp.down_proj.weight";
    });
    for (const auto& [tensor, stored] : folder.tensors)
      if (tensor.starts_with(of.name)) source.others[name + tensor.substr(of.name.size())] = stored;
    source.root["quantization_config"] = json::parse(folder.quantization);
    std::vector<float> values(static_cast<std::size_t>(of.n_elems()));
    must(folder.open()->read(of.param, values));
    std::vector<std::byte> rounded(values.size() * 2);
    must(narrow_from_f32(values, DType::bf16, rounded));
    return {"BF16", of.shape, test::bytes_of(std::span<const std::byte>(rounded))};
  }

  const test::TempDir dir;
  const std::string out = dir.file("out");
  const DecoderConfig config = test::config_in(GetParam().family);
  test::WholeFolder source{dir.file("source"), config, GetParam().type};
};

TEST_P(ExtraLayersTest, AreWrittenByteForByteAndCounted) {
  const OtherParts parts = record();
  EXPECT_EQ(parts.tensors.size(), source.others.size());
  EXPECT_TRUE(exported(parts).is_ok());
  std::map<std::string, test::StoredBytes> want = source.text;
  want.insert(source.others.begin(), source.others.end());
  EXPECT_EQ(tensors_out(), want);
  EXPECT_EQ(config_out().at(GetParam().key), 1);
  EXPECT_TRUE(check_hf_export(posix_io(), out, test::values_named, DType::f32, parts).is_ok());
}

TEST_P(ExtraLayersTest, ATextModelThatIsExportedAloneHasNone) {
  source.write();
  EXPECT_TRUE(exported({}).is_ok());
  EXPECT_EQ(config_out().value(GetParam().key, 0), 0);
  EXPECT_FALSE(must(other_parts_of(posix_io(), out)).has_value());
}

TEST_P(ExtraLayersTest, AFolderWithoutThemSaysSoWhateverItsSourceSaid) {
  source.others.clear();
  source.write();
  EXPECT_TRUE(exported(must(digest_other_parts(posix_io(), source.path))).is_ok());
  EXPECT_EQ(config_out().value(GetParam().key, 0), 0);
}

TEST_P(ExtraLayersTest, QuantizedMatricesHaveTheValuesInTheDtypeOfTheExport) {
  const std::string name = str(GetParam().beginning, "mlp.up_proj.weight");
  for (const WeightFormat format : {WeightFormat::fp8_block, WeightFormat::int4}) {
    source.others.clear();
    source.add_extra_layer(GetParam().beginning);
    const test::StoredBytes want = add_quantized(format, name);
    const OtherParts parts = record();
    EXPECT_EQ(parts.quantized_matrices(), 1U);
    EXPECT_TRUE(exported(parts, DType::bf16).is_ok());
    const auto tensors = tensors_out();
    EXPECT_EQ(tensors.at(name), want);
    EXPECT_EQ(tensors.at(str(GetParam().beginning, "eh_proj.weight")),
              source.others.at(str(GetParam().beginning, "eh_proj.weight")));
    EXPECT_EQ(tensors.size(), source.text.size() + 4);
    EXPECT_FALSE(config_out().contains("quantization_config"));
    EXPECT_TRUE(check_hf_export(posix_io(), out, test::values_named, DType::bf16, parts).is_ok());
    must(posix_io().remove_all(out));
  }
}

TEST_P(ExtraLayersTest, AnExportWithFurtherTensorsFailsItsCheck) {
  const std::string name = str(GetParam().beginning, "mlp.up_proj.weight");
  add_quantized(WeightFormat::fp8_block, name);
  const OtherParts parts = record();
  EXPECT_TRUE(exported(parts, DType::bf16).is_ok());
  OtherParts others = parts;  // nothing is left of them but the matrix
  std::erase_if(others.tensors, [&](const OtherTensor& tensor) { return !tensor.name.starts_with(name); });
  const Status status = check_hf_export(posix_io(), out, test::values_named, DType::bf16, others);
  EXPECT_EQ(status.code(), Code::corrupt) << status.message();
}

TEST_P(ExtraLayersTest, AQuantizedMatrixThatHasChangedIsRefused) {
  add_quantized(WeightFormat::fp8_block, str(GetParam().beginning, "mlp.up_proj.weight"));
  const OtherParts parts = record();
  char& last = source.others.at(str(GetParam().beginning, "mlp.up_proj.weight_scale_inv")).bytes.front();
  last = static_cast<char>(last ^ 1);
  source.write();
  const Status status = exported(parts, DType::bf16);
  EXPECT_NE(std::string(status.message()).find("mlp.up_proj.weight_scale_inv has the digest"),
            std::string::npos)
      << status.message();
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExtraLayersTest, ::testing::ValuesIn(kExtraKinds),
                         [](const auto& test) { return std::string(test.param.type); });

}  // namespace
}  // namespace strata
