// Files of records in memory, and what is read of them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/text/documents.h>
#include <strata/runtime/str.h>

#include "support/memory_io.h"

namespace strata::test {

/// A document as one line: the text in the loss is in brackets; "|" is an end of text in the loss.
inline std::string drawn(const Document& document) {
  std::string out;
  for (const Segment& s : document.segments) out += s.loss_mask ? str("[", s.text, "]") : s.text;
  const ChatText& chat = document.chat;
  std::size_t done = 0;
  for (const ChatAnswer& answer : chat.answers) {
    out += str(chat.text.substr(done, answer.begin - done), "[",
               chat.text.substr(answer.begin, answer.said_end - answer.begin), "]");
    done = answer.said_end;
  }
  return out + chat.text.substr(done) + (document.end_loss_mask ? "|" : "");
}
inline ChatTemplate named(const char* name) { return must(ChatTemplate::named(name)); }

struct ReadRecordsTest : testing::Test {
  Result<RecordStats> read(const std::string& text,
                           const Result<ChatTemplate>& chat = ChatTemplate::named("chatml"),
                           RecordUse use = RecordUse::texts) {
    io.put("a.jsonl", text);
    documents.clear();
    const auto take = [this](const Document& document) {
      documents.push_back(drawn(document));
      return Status::ok();
    };
    return read_records(io, "a.jsonl", chat, take, use);
  }
  Result<RecordStats> read_pairs(const std::string& text) {
    return read(text, ChatTemplate::named("chatml"), RecordUse::pairs);
  }
  std::string refusal(const std::string& text) {
    const auto stats = read(text);
    EXPECT_EQ(stats.status().code(), stats.has_value() ? Code::ok : Code::invalid) << text;
    return stats.has_value() ? "taken" : std::string(stats.status().message());
  }
  MemoryIo io;
  std::vector<std::string> documents;
};

}  // namespace strata::test
