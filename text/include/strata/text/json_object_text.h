#pragma once

#include <cstdint>

namespace strata {

/// A text, byte by byte, that is to become one JSON object (RFC 8259) and nothing else but white space around
/// it. As long as no byte is refused, some bytes complete it. Strings are UTF-8, escaped surrogates come in
/// pairs; objects and arrays are nested at most kMaxDepth deep, and white space has at most kMaxSpace bytes
/// in a row, so that a model which writes nothing else must go on. A small value, which is copied to try what
/// may follow.
class JsonObjectText {
 public:
  static constexpr int kMaxDepth = 64, kMaxSpace = 64;

  /// Whether the text may go on with this byte. After a refused one the text is as it was.
  bool push(unsigned char byte) noexcept;
  /// The object is closed: only white space may follow.
  bool is_complete() const noexcept { return state_ == State::complete; }

 private:
  enum class State : std::uint8_t {
    begin,
    first_key,  ///< or the end of the object
    key,
    colon,
    value,
    first_value,  ///< or the end of the array
    after_value,
    string,
    escape,
    hex,
    low_backslash,  ///< begins the second half of a pair of surrogates
    low_u,
    utf8,
    literal,
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    complete,
  };
  bool step(unsigned char byte) noexcept;
  bool push_space() noexcept;
  bool push_begin_of_value(unsigned char byte) noexcept;
  bool push_after_value(unsigned char byte) noexcept;
  bool push_in_string(unsigned char byte) noexcept;
  bool push_escape(unsigned char byte) noexcept;
  bool push_hex(unsigned char byte) noexcept;
  bool push_begin_of_character(unsigned char byte) noexcept;
  bool push_in_number(unsigned char byte) noexcept;
  bool open(bool is_object) noexcept;
  bool close() noexcept;
  bool go(State state) noexcept {
    state_ = state;
    return true;
  }
  void end_string() noexcept { state_ = is_key_ ? State::colon : State::after_value; }
  bool in_object() const noexcept { return (objects_ & 1U) != 0; }

  State state_ = State::begin;
  bool is_key_ = false;
  bool is_low_ = false;  // the second half of a pair of surrogates is being read
  std::uint8_t depth_ = 0, space_ = 0;
  std::uint8_t left_ = 0;            // bytes of a character, or digits of an escape, that are missing
  std::uint8_t low_ = 0, high_ = 0;  // the next byte of a character is from low_ to high_
  std::uint16_t code_ = 0;           // what the digits of an escape say
  const char* rest_ = "";            // what a literal still needs
  std::uint64_t objects_ = 0;        // what is open, the innermost in the lowest bit: 1 is an object
};

}  // namespace strata
