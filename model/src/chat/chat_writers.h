#pragma once

#include <span>
#include <string_view>
#include <utility>

#include <strata/model/chat.h>

namespace strata::detail {

/// Appends to a text and records the ranges of its markers and messages.
class ChatWriter {
 public:
  void marker(std::string_view text) {
    out_.markers.push_back({out_.text.size(), out_.text.size() + text.size()});
    out_.text += text;
  }
  void text(std::string_view text) { out_.text += text; }
  /// Begins the written range of the next message; end() ends it.
  void begin(const ChatMessage& message) {
    out_.written.push_back({out_.text.size(), out_.text.size()});
    out_.loss_mask.push_back(message.role == "assistant");
  }
  void end() { out_.written.back().end = out_.text.size(); }
  ChatText take() { return std::move(out_); }

 private:
  ChatText out_;
};

/// A format's name, and how conversations are written in it.
struct NamedChatFormat {
  std::string_view name;
  ChatFormat format;
  void (*write)(const ChatTemplate&, std::span<const ChatMessage>, bool, ChatWriter&);
};

/// All of them, each once.
std::span<const NamedChatFormat> chat_formats() noexcept;

}  // namespace strata::detail
