// Measures how fast a tokenizer encodes a file on one thread; the claim `tokenizer` compares the ids with
// those of Hugging Face.
//   tokenizer_rate TOKENIZER TEXT IDS ROUNDS
// Encodes the whole file at once with special tokens recognized and writes the ids (32 bits each) to IDS.
// Prints the seconds to load the tokenizer and of each round, as JSON.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const char* const* arguments) {
  using strata::must;
  strata::Io& io = strata::posix_io();
  const std::string text = must(strata::read_text(io, arguments[1], std::uint64_t{1} << 32));
  auto begin = std::chrono::steady_clock::now();
  const strata::Tokenizer tokenizer = must(strata::Tokenizer::load(io, arguments[0]));
  std::string out = strata::str("{\"load_s\": ", seconds_since(begin), ", \"encode_s\": [");
  std::vector<std::int32_t> ids;
  for (int round = 0; round < std::atoi(arguments[3]); ++round) {
    begin = std::chrono::steady_clock::now();
    ids = tokenizer.encode(text, strata::SpecialTokens::recognised);
    out += strata::str(round == 0 ? "" : ", ", seconds_since(begin));
  }
  must(strata::write_text_atomically(
      io, arguments[2], {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])}));
  const bool back = must(tokenizer.decode(ids)) == tokenizer.normalized(text);
  fmt::print("{}], \"bytes\": {}, \"ids\": {}, \"comes_back\": {}}}\n", out, text.size(), ids.size(), back);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: tokenizer_rate TOKENIZER TEXT IDS ROUNDS\n");
    return 2;
  }
  try {
    measure(argv + 1);
  } catch (const std::exception& e) {
    fmt::print(stderr, "tokenizer_rate: {}\n", e.what());
    return 1;
  }
  return 0;
}
