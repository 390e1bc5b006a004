#include <strata/text/tokenizer_reader.h>

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

namespace strata {
namespace {

/// How a class of transformers reads tokenizer.json.
enum class Reader : std::uint8_t { as_written, gpt2, qwen2, gemma };

// As transformers 5.24 has it in models/auto/tokenization_auto.py.
Reader reader_of(std::string_view family, std::string_view name) {
  constexpr std::array<std::string_view, 5> kAsWritten = {"glm", "glm4", "mistral", "olmo2", "phi3"};
  if (family == "qwen2") return Reader::qwen2;
  if (std::find(kAsWritten.begin(), kAsWritten.end(), family) != kAsWritten.end()) return Reader::as_written;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (name == "Qwen2Tokenizer" || (name.empty() && family == "qwen3")) return Reader::qwen2;
  if (name == "GPT2Tokenizer" || (name.empty() && (family == "gpt2" || family == "opt"))) return Reader::gpt2;
  if (name == "GemmaTokenizer" || (name.empty() && family.starts_with("gemma"))) return Reader::gemma;
  return Reader::as_written;
}

struct Reading {
  const char* by;
  SplitRule split;
  bool nfc;
};
Reading reading_of(Reader reader, const TokenizerSpec& spec) {
  switch (reader) {
    case Reader::gpt2:
      return {"GPT2Tokenizer", SplitRule::gpt2, false};
    case Reader::qwen2:
      return {"Qwen2Tokenizer", SplitRule::qwen2, true};
    case Reader::gemma:
      return {"GemmaTokenizer", SplitRule::none, false};
    case Reader::as_written:
      break;
  }
  return {"TokenizersBackend", spec.split, spec.nfc};
}

std::string described(SplitRule split, bool nfc) {
  const char* const name = split == SplitRule::gpt2     ? "GPT-2"
                           : split == SplitRule::digits ? "StarCoder"
                           : split == SplitRule::cl100k ? "cl100k"
                           : split == SplitRule::qwen2  ? "Qwen2"
                                                        : "SentencePiece";
  return str("the splits of ", name, nfc ? " after NFC" : "");
}

}  // namespace

SplitRule own_split(std::string_view family) noexcept {
  return family == "qwen2" ? SplitRule::qwen2 : SplitRule::gpt2;
}

Status check_tokenizer_reader(const Tokenizer& tokenizer, std::string_view family,
                              const std::string& tokenizer_class) {
  const TokenizerSpec& spec = tokenizer.spec();
  const Reading reading = reading_of(reader_of(family, tokenizer_class), spec);
  if (reading.split == spec.split && reading.nfc == spec.nfc) return {};
  return Status::error(
      Code::unsupported,
      str("AutoTokenizer of transformers 5 reads the tokenizer of a ", family, " model as ", reading.by,
          ", with ", described(reading.split, reading.nfc), "; the model was trained with ",
          described(spec.split, spec.nfc),
          ", so other ids come out: load it with PreTrainedTokenizerFast.from_pretrained() instead"));
}

}  // namespace strata
