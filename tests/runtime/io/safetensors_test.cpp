#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/io/safetensors_parts.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>
#include <unistd.h>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <support/memory_io.h>
#include <support/temp_dir.h>

namespace strata {
namespace {

std::vector<std::byte> random_bytes(std::size_t n, std::uint64_t seed) {
  std::vector<std::byte> out(n);
  const Rng rng(seed, 0);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(rng.u32(i));
  return out;
}

/// A file as stored on disk: the length of `header`, the header, and `data_bytes` bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + header + std::string(data_bytes, 'x');
}

std::unique_ptr<SafetensorsWriter> small_writer(MemoryIo& io) {
  return must(SafetensorsWriter::create(io, "m.safetensors", {{"a", "F32", {2, 3}}, {"b", "U8", {5}}}));
}

struct Random {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> data;
};
Random random_model(std::uint64_t seed) {
  const Rng rng(seed, 1);
  const std::vector<std::pair<std::string, std::size_t>> dtypes = {
      {"F32", 4}, {"BF16", 2}, {"I64", 8}, {"BOOL", 1}};
  Random out;
  for (std::uint64_t i = 0; i < 1 + rng.below(0, 12); ++i) {
    const auto& [dtype, size] = dtypes[rng.below(10 * i + 1, dtypes.size())];
    std::vector<std::uint64_t> shape(rng.below(10 * i + 2, 5));
    std::size_t n = size;
    for (std::size_t d = 0; d < shape.size(); ++d) n *= shape[d] = rng.below(10 * i + 3 + d, 7);
    out.specs.push_back({str("layer.", i, ".\"w\"\u00e9"), dtype, shape});
    out.data.push_back(random_bytes(n, seed + i));
  }
  return out;
}

TEST(SafetensorsRoundTripTest, DataWrittenInPiecesIsReadBack) {
  for (std::uint64_t given = 0; given < 25; ++given) {
    SCOPED_TRACE(given);
    MemoryIo io({.max_transfer_bytes = 7});  // every transfer is short
    const Random model = random_model(given);
    auto writer = must(SafetensorsWriter::create(io, "m.safetensors", model.specs, {{"format", "pt"}}));
    for (const auto& tensor : model.data) {
      const std::size_t cut = tensor.size() / 3;
      must(writer->append(std::span(tensor).first(cut)));
      must(writer->append(std::span(tensor).subspan(cut)));
    }
    must(writer->finish());
    EXPECT_EQ(writer->digest_hex(), to_hex(must(digest_file(io, "m.safetensors")).digest));

    const auto file = must(SafetensorsFile::open(io, "m.safetensors"));
    EXPECT_EQ(file->metadata().at("format"), "pt");
    ASSERT_EQ(file->entries().size(), model.specs.size());
    for (std::size_t i = 0; i < model.specs.size(); ++i) {
      const SafetensorsEntry* entry = file->find(model.specs[i].name);
      ASSERT_NE(entry, nullptr);
      EXPECT_EQ(entry->shape, model.specs[i].shape);
      EXPECT_EQ(entry->dtype, model.specs[i].dtype);
      std::vector<std::byte> back(entry->bytes);
      must(file->read(entry->name, back));
      EXPECT_EQ(back, model.data[i]);
    }
  }
}

TEST(SafetensorsTest, DataBeginsAtAMultipleOfEight) {
  MemoryIo io;
  const auto writer = small_writer(io);
  EXPECT_EQ((writer->file_bytes() - 29) % 8, 0u);
}

TEST(SafetensorsTest, HeaderIsTheReferenceText) {
  MemoryIo io;
  const auto writer = must(SafetensorsWriter::create(io, "m", {{"a", "F32", {2}}}, {{"k", "v"}}));
  must(writer->append(std::vector<std::byte>(8)));
  must(writer->finish());
  const std::string text =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )";
  EXPECT_EQ(io.get("m").substr(8, text.size()), text);
}

TEST(SafetensorsTest, RangesOfATensorAreReadOnTheirOwn) {
  MemoryIo io;
  io.put("m", file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 0) + "wxyz");
  const auto file = must(SafetensorsFile::open(io, "m"));
  std::string part(2, '\0');
  must(file->read_range(file->entries()[0], 1, std::as_writable_bytes(std::span(part))));
  EXPECT_EQ(part, "xy");
  EXPECT_EQ(file->read_range(file->entries()[0], 3, std::as_writable_bytes(std::span(part))).code(),
            Code::invalid);
}

TEST(SafetensorsTest, AFileWithoutTensorsIsValid) {
  MemoryIo io;
  must(must(SafetensorsWriter::create(io, "m", {}))->finish());
  EXPECT_TRUE(must(SafetensorsFile::open(io, "m"))->entries().empty());
}

// The process would get SIGBUS here if the file were mapped; positioned reads report the end of the file.
TEST(SafetensorsTest, AFileTruncatedWhileItIsReadIsCorruptWithoutACrash) {
  const test::TempDir dir;
  const std::string path = dir.file("m.safetensors");
  const auto writer = must(SafetensorsWriter::create(posix_io(), path, {{"a", "U8", {1 << 20}}}, {}));
  must(writer->append(std::vector<std::byte>(1 << 20)));
  must(writer->finish());
  const auto file = must(SafetensorsFile::open(posix_io(), path));
  ASSERT_EQ(::truncate(path.c_str(), 1 << 19), 0);
  std::vector<std::byte> bytes(1 << 20);
  EXPECT_EQ(file->read_range(file->entries()[0], 0, bytes).code(), Code::corrupt);
}

TEST(SafetensorsTest, AnUnfinishedFileIsRefused) {
  MemoryIo io;
  const auto writer = small_writer(io);
  must(writer->append(std::vector<std::byte>(29)));
  EXPECT_EQ(SafetensorsFile::open(io, "m.safetensors").status().code(), Code::corrupt);
}

TEST(SafetensorsTest, FinishNamesTheIncompleteTensor) {
  MemoryIo io;
  const auto writer = small_writer(io);
  must(writer->append(std::vector<std::byte>(24)));
  const Status status = writer->finish();
  EXPECT_EQ(status.message(), "m.safetensors: 24 of 29 bytes given; tensor 'b' is not complete");
}

TEST(SafetensorsTest, TooManyBytesAreRefusedAndTheErrorSticks) {
  MemoryIo io;
  const auto writer = small_writer(io);
  const Status status = writer->append(std::vector<std::byte>(30));
  EXPECT_EQ(status.message(), "m.safetensors: 30 bytes given, 29 of the declared 29 are left");
  EXPECT_EQ(writer->append(std::vector<std::byte>(1)), status);
  EXPECT_EQ(writer->finish(), status);
}

TEST(SafetensorsTest, AFullDiskIsFoundBeforeTheFirstByte) {
  MemoryIo io({.capacity_bytes = 64});
  EXPECT_EQ(SafetensorsWriter::create(io, "m", {{"a", "F32", {100}}}).status().code(), Code::no_space);
}

TEST(SafetensorsTest, AnExistingFileIsNotOverwritten) {
  MemoryIo io;
  io.put("m", "precious");
  EXPECT_FALSE(SafetensorsWriter::create(io, "m", {}).has_value());
  EXPECT_EQ(io.get("m"), "precious");
}

TEST(SafetensorsTest, ReadingNamesMissingTensorsAndWrongSizes) {
  MemoryIo io;
  io.put("m", file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  const auto file = must(SafetensorsFile::open(io, "m"));
  std::vector<std::byte> three(3);
  EXPECT_EQ(file->read("b", three).code(), Code::not_found);
  EXPECT_EQ(file->read("a", three).message(), "'a': 4 bytes stored, 3 given");
}

struct BadSpec {
  std::string what;
  std::vector<TensorSpec> specs;
  std::string message;
};
std::vector<BadSpec> bad_specs() {
  return {BadSpec{"Duplicate", {{"a", "U8", {}}, {"a", "U8", {}}}, "'a' occurs twice"},
          BadSpec{"DType", {{"a", "F33", {}}}, "unknown dtype 'F33'"},
          BadSpec{"Metadata", {{"__metadata__", "U8", {}}}, "__metadata__"},
          BadSpec{"Overflow", {{"a", "F32", {1ull << 40, 1ull << 40}}}, "'a': its shape"},
          BadSpec{"Utf8", {{"\xff", "U8", {}}}, "UTF-8"},
          BadSpec{"LongName", {{std::string(5000, 'n'), "U8", {}}}, "5000 bytes, at most 4096"}};
}

TEST(SafetensorsBadSpecTest, IsRefusedBeforeAFileIsCreated) {
  for (const BadSpec& given : bad_specs()) {
    SCOPED_TRACE(given.what);
    MemoryIo io;
    const Status status = SafetensorsWriter::create(io, "m", given.specs).status();
    EXPECT_NE(status.message().find(given.message), std::string_view::npos) << status.to_string();
    EXPECT_FALSE(io.exists("m"));
  }
}

struct Hostile {
  std::string what;
  std::string file;
  std::string message;  // part of the message that open() must return
};
std::string tensor(const std::string& body) { return str("{\"a\":{", body, "}}"); }
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return tensor(str("\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets));
}
std::string ones(std::size_t n) {
  std::string out = "[1";
  for (std::size_t i = 1; i < n; ++i) out += ",1";
  return out + "]";
}
std::string nested(std::size_t depth) {
  return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

const std::string kA = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
const std::string kB = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})";
std::vector<Hostile> hostile_files() {
  return {
      Hostile{"Empty", "", "0 bytes, a safetensors file has at least 8"},
      Hostile{"SevenBytes", std::string(7, '\0'), "7 bytes"},
      Hostile{"ZeroHeader", std::string(8, '\0'), "does not begin with '{'"},
      Hostile{"HeaderPastEnd", file_of("{}", 0).substr(0, 9), "claims 2 bytes, the file has 1"},
      Hostile{"HugeHeader", std::string(8, '\xff') + "{}", "claims 18446744073709551615 bytes"},
      Hostile{"LeadingSpace", file_of(" {}", 0), "does not begin with '{'"},
      Hostile{"ByteOrderMark", file_of("\xEF\xBB\xBF{}", 0), "does not begin with '{'"},
      Hostile{"Array", file_of("[]", 0), "does not begin with '{'"},
      Hostile{"Truncated", file_of("{\"a\":{", 0), "not JSON at byte"},
      Hostile{"Garbage", file_of("{} x", 0), "not JSON at byte"},
      Hostile{"HiddenAfterNul", file_of(std::string("{}\0{}", 5), 0), "a NUL at byte 2"},
      Hostile{"BadUtf8", file_of("{\"\xff\":1}", 0), "not JSON at byte"},
      Hostile{"DeepArrays", file_of(nested(1'000'000), 0), "'a': an array is not allowed here"},
      Hostile{"NumberForTensor", file_of(R"({"a":1})", 0), "'a': the number 1"},
      Hostile{"NullForTensor", file_of(R"({"a":null})", 0), "'a': null"},
      Hostile{"NoDtype", file_of(tensor(R"("shape":[1],"data_offsets":[0,1])"), 1), "'a': needs dtype"},
      Hostile{"NoShape", file_of(tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1),
              "'a': needs dtype, shape"},
      Hostile{"NoOffsets", file_of(tensor(R"("dtype":"U8","shape":[1])"), 1), "'a': needs dtype"},
      Hostile{"UnknownField", file_of(tensor(R"("dtype":"U8","stride":[1])"), 1),
              "'a': unknown field 'stride'"},
      Hostile{"FieldTwice", file_of(tensor(R"("dtype":"U8","dtype":"F32")"), 1), "'a': dtype occurs twice"},
      Hostile{"UnknownDtype", file_of(tensor("F12", "[1]", "[0,1]"), 1), "unknown dtype 'F12'"},
      Hostile{"NegativeExtent", file_of(tensor("U8", "[-1]", "[0,1]"), 1), "the number -1"},
      Hostile{"FloatExtent", file_of(tensor("U8", "[1.0]", "[0,1]"), 1), "the number 1.0"},
      Hostile{"HugeExtent", file_of(tensor("U8", "[18446744073709551616]", "[0,1]"), 1),
              "the number 18446744073709551616"},
      Hostile{"NestedShape", file_of(tensor("U8", "[[1]]", "[0,1]"), 1), "'a': an array"},
      Hostile{"ShapeOverflow", file_of(tensor("F32", "[4294967296,4294967296]", "[0,0]"), 0),
              "make more than 9223372036854775807"},
      Hostile{"OverflowHiddenByZero", file_of(tensor("F32", "[4294967296,4294967296,0]", "[0,0]"), 0),
              "make more than"},
      Hostile{"Rank65", file_of(tensor("U8", ones(65), "[0,1]"), 1), "more than 64 dimensions"},
      Hostile{"OneOffset", file_of(tensor("U8", "[1]", "[0]"), 1), "'a': 1 data_offsets, not 2"},
      Hostile{"ThreeOffsets", file_of(tensor("U8", "[1]", "[0,1,2]"), 1), "'a': more than 2 data_offsets"},
      Hostile{"BackwardRange", file_of(tensor("U8", "[1]", "[1,0]"), 1), "begins at 1 and ends at 0"},
      Hostile{"RangeTooShort", file_of(tensor("F32", "[2]", "[0,4]"), 4),
              "its range has 4 bytes, its shape and dtype need 8"},
      Hostile{"RangePastEnd", file_of(tensor("U8", "[9]", "[0,9]"), 4),
              "its tensors end at 9, the data has 4 bytes"},
      Hostile{"RangeNearTheTop",
              file_of(tensor("U8", "[1]", "[18446744073709551614,18446744073709551615]"), 1),
              "begins at 18446744073709551614"},
      Hostile{"FirstNotAtZero", file_of(tensor("U8", "[1]", "[1,2]"), 2),
              "'a': begins at 1, the data before it ends at 0"},
      Hostile{"Hole", file_of("{" + kA + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", 4),
              "'b': begins at 3, the data before it ends at 2"},
      Hostile{"Overlap", file_of("{" + kA + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4),
              "'b': begins at 1, the data before it ends at 2"},
      Hostile{"BytesAfterTheLast", file_of("{" + kA + "}", 3), "its tensors end at 2, the data has 3 bytes"},
      Hostile{"DataWithoutTensors", file_of("{}", 1), "its tensors end at 0, the data has 1 bytes"},
      Hostile{"SameNameTwice",
              file_of("{" + kA + R"(,"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4),
              "tensor 'a' occurs twice"},
      Hostile{"SameNameTwiceEscaped",
              file_of("{" + kA + R"(,"\u0061":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4),
              "tensor 'a' occurs twice"},
      Hostile{"LongName", file_of("{\"" + std::string(4097, 'n') + "\":{}}", 0),
              "a name of 4097 bytes, at most 4096"},
      Hostile{"MetadataNumber", file_of(R"({"__metadata__":{"k":1}})", 0), "metadata 'k': the number 1"},
      Hostile{"MetadataObject", file_of(R"({"__metadata__":{"k":{}}})", 0), "metadata 'k': an object"},
      Hostile{"MetadataKeyTwice", file_of(R"({"__metadata__":{"k":"v","k":"v"}})", 0),
              "metadata key 'k' occurs twice"},
      Hostile{"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0),
              "__metadata__ occurs twice"},
      Hostile{"MetadataString", file_of(R"({"__metadata__":"x"})", 0), "the string 'x'"}};
}

TEST(SafetensorsHostileTest, IsRefusedWithAMessage) {
  for (const Hostile& given : hostile_files()) {
    SCOPED_TRACE(given.what);
    MemoryIo io;
    io.put("evil.safetensors", given.file);
    const Status status = SafetensorsFile::open(io, "evil.safetensors").status();
    EXPECT_FALSE(status.is_ok());
    EXPECT_EQ(status.message().substr(0, 18), "evil.safetensors: ");
    EXPECT_NE(status.message().find(given.message), std::string_view::npos) << status.to_string();
  }
}

TEST(SafetensorsPrefixTest, NoProperPrefixOfAFileOpens) {
  for (std::size_t given = 0; given < 16; ++given) {
    SCOPED_TRACE(given);
    MemoryIo io;
    const std::string whole = file_of("{" + kA + "," + kB + "}", 4);
    io.put("cut", whole.substr(0, whole.size() * given / 16));
    EXPECT_FALSE(SafetensorsFile::open(io, "cut").has_value());
  }
}

TEST(DigestTest, EmptyInputHasThePublishedXxh3Value) {
  EXPECT_EQ(to_hex(digest_of({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(Digester().digest()), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, PiecesGiveTheDigestOfTheWhole) {
  const auto bytes = random_bytes(5000, 3);
  Digester digester;
  digester.update(std::span(bytes).first(1234));
  digester.update(std::span(bytes).subspan(1234));
  EXPECT_EQ(digester.digest(), digest_of(bytes));
}

TEST(DigestTest, BlocksMayBeDigestedByDifferentReaders) {
  constexpr std::size_t kBlock = BlockDigester::kBlockBytes;
  const auto bytes = random_bytes(3 * kBlock + 100, 4);
  BlockDigester whole;
  for (std::size_t at = 0; at < bytes.size(); at += 1000)
    whole.update(std::span(bytes).subspan(at, std::min<std::size_t>(1000, bytes.size() - at)));
  const Digest want = whole.digest();
  BlockDigester first, second;
  first.update(std::span(bytes).first(2 * kBlock));
  second.update(std::span(bytes).subspan(2 * kBlock));
  std::vector<Digest> blocks = first.take();
  const std::vector<Digest> more = second.take();
  blocks.insert(blocks.end(), more.begin(), more.end());
  EXPECT_EQ(BlockDigester::digest_of_blocks(blocks), want);
  EXPECT_EQ(blocks[3], digest_of(std::span(bytes).subspan(3 * kBlock)));
  second.update(std::span(bytes).first(kBlock));
  EXPECT_EQ(second.take(), std::vector<Digest>{blocks[0]}) << "take() begins anew";
}

TEST(SafetensorsPartsTest, SeveralWritersMakeTheFileOfOne) {
  MemoryIo io;
  const std::vector<TensorSpec> specs = {{"b", "F32", {6}}, {"a", "U8", {5}}};
  const auto data = random_bytes(29, 7);
  const auto one = must(SafetensorsWriter::create(io, "one", specs, {{"k", "v"}}));
  must(one->append(data));
  must(one->finish());
  const auto first = must(SafetensorsPartsWriter::create(io, "many", specs, {{"k", "v"}}));
  const auto second = must(SafetensorsPartsWriter::join(io, "many", specs, {{"k", "v"}}));
  must(second->write(1, 2, std::span(data).subspan(26, 3)));
  must(first->write(1, 0, std::span(data).subspan(24, 2)));
  must(first->write(0, 8, std::span(data).subspan(8, 16)));
  must(second->write(0, 0, std::span(data).first(8)));
  must(second->sync());
  EXPECT_FALSE(SafetensorsFile::open(io, "many").has_value()) << "not before it is finished";
  EXPECT_EQ(first->write(0, 20, std::span(data).first(5)).code(), Code::invalid) << "past the tensor's end";
  must(first->finish());
  EXPECT_EQ(must(digest_file(io, "many")), must(digest_file(io, "one")));
  EXPECT_EQ(must(must(SafetensorsFile::open(io, "many"))->header_digest()), first->header_digest());
  EXPECT_EQ(SafetensorsPartsWriter::join(io, "many", {{"a", "U8", {5}}}, {}).status().code(), Code::invalid);
  EXPECT_EQ(SafetensorsPartsWriter::join(io, "none", specs, {}).status().code(), Code::not_found);
}

}  // namespace
}  // namespace strata
